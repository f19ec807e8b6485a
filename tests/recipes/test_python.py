"""Recipes that are Python: what is followed of a file's text, and that nothing of it is run."""

from pathlib import Path

import pytest
from runcast.simulator.base.errors import UserError
from runcast.simulator.formats.recipes import Additions, read_recipe
from runcast.simulator.formats.recipes.arguments import Computed
from runcast.simulator.formats.recipes.python_files import Modules
from runcast.simulator.formats.recipes.python_recipe import PythonRecipe
from runcast.simulator.formats.recipes.python_tools import recipe_names, recognize_python

LIBRARY = {"common": {"train": {"size": 8}}, "pair": [{"first": 1}, {"second": 2}],
           "switch": {"changes": {"model": {"flex": True}}, "unless_none": 1}}  # fmt: skip


def value(body, settings=(), head="", parameters=""):
    lines = "\n    ".join(body.strip().splitlines())
    imports = "from tool import common, pair, replace, switch, Thing, tool, torch"
    text = f"{imports}\n{head}\ndef recipe({parameters}) -> Partial:\n    {lines}\n"
    found = PythonRecipe("nemo", text, "r.py", LIBRARY).read("recipe", dict(settings))
    return found["x"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return {'x': [1, 2.5, None, True, 'a']}", [1, 2.5, None, True, "a"]),
        ("a = 4\na += 2\nreturn dict(x=-a * 2)", -12),
        ("return {'x': ['a'] * 2 + ['b']}", ["a", "a", "b"]),
        ("a = b = 3\nreturn {'x': a + b}", 6),
        ("return {'x': Thing(1, size=2)}", {"_target_": "Thing", "_args_": [1], "size": 2}),
        ("cfg = common(more=1)\nreturn {'x': cfg}", {"_target_": "common", "train": {"size": 8}, "more": 1}),
        ("cfg = common()\ncfg.train.size = 16\nreturn {'x': cfg.train.size}", 16),
        ("cfg = Thing()\ncfg.new.key = 1\nreturn {'x': cfg.new}", {"key": 1}),
        ("a, b = pair()\nreturn {'x': b}", {"second": 2}),
        ("cfg = Thing(model={})\nswitch(cfg, 'on')\nreturn {'x': cfg.model}", {"flex": True}),
        ("cfg = Thing(model={})\nswitch(cfg, None)\nreturn {'x': cfg.model}", {}),
        ("a = None\nif a is None:\n    a = 1\nelif a > 2:\n    a = 2\nreturn {'x': a}", 1),
        ("return {'x': 'yes' if 'a' in ['a'] and not False else 'no'}", "yes"),
        ("a = None or 5\nreturn {'x': a}", 5),
        ("return {'x': {**{'a': 1}, 'a': 2}}", {"a": 2}),
        ("a = {(8, 1): 'even'}\nreturn {'x': a[(8, 1)] if (8, 1) in a else 0}", "even"),
        ("a = []\na.append(1)\na.extend([2, 3])\nreturn {'x': a}", [1, 2, 3]),
        ("a = Thing(b=1)\nreturn {'x': [getattr(a, 'b', 2), getattr(a, 'c', 2), hasattr(a, 'b')]}", [1, 2, True]),
        ("return {'x': list([list(one) for one in ((1, 2), (3,))])}", [[1, 2], [3]]),
        ("return {'x': 'LoRA'.lower() == 'lora'}", True),
        ("try:\n    a = 1\nexcept ValueError:\n    a = 2\nreturn {'x': a}", 1),
        ("from tool import other as o\nreturn {'x': o(1)}", {"_target_": "other", "_args_": [1]}),
        ("return {'x': [2**10, 7 % 4, +1, int(2.7), float(2)]}", [1024, 3, 1, 2, 2.0]),
        ("a = [1]\nreturn {'x': [0, *a, *(2,)]}", [0, 1, 2]),
        ("a = {'b': 1}\na.update({'c': 2})\nreturn {'x': a}", {"b": 1, "c": 2}),
        ("a = Thing(b={'c': 1})\nd = replace(a, e=2)\nd.b.c = 3\nreturn {'x': [a.b.c, d.b.c, d.e]}", [1, 3, 2]),
        ("import copy\na = Thing(b=1)\nd = copy.deepcopy(a)\nd.b = 2\nreturn {'x': [a.b, d.b]}", [1, 2]),
        ("return {'x': tool.Sub.Config(1, b=2)}", {"_target_": "tool.Sub.Config", "_args_": [1], "b": 2}),
        ("return {'x': _Unseen(b=2)}", {"_target_": "_Unseen", "b": 2}),
        ("a = {'b': 1}\nreturn {'x': [a.get('b'), a.get('c', 2), a.get('c')]}", [1, 2, None]),
        ("a = {'b': 1, **tool.read()}\nreturn {'x': a.get('b')}", 1),
    ],
)  # fmt: skip
def test_what_is_plain_is_followed(body, expected):
    assert value(body) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return {'x': torch.bfloat16}", Computed("torch.bfloat16", is_name=True)),
        ("return {'x': f'{1}'}", Computed("f'{1}'")),
        ("return {'x': [i for i in range(3)]}", Computed("[i for i in range(3)]")),
        ("return {'x': [i for i in [1] if i]}", Computed("[i for i in [1] if i]")),
        ("return {'x': 2 ** 1000}", Computed("2 ** 1000")),
        ("return {'x': [1] * 1000000000}", Computed("[1] * 1000000000")),
        ("return {'x': 1 // 0}", Computed("1 // 0")),
        ("return {'x': open('/etc/passwd').read()}", Computed("open('/etc/passwd').read()")),
        ("return {'x': __import__('os').system('touch ran')}", Computed("__import__('os').system('touch ran')")),
        ("return {'x': eval('1')}", Computed("eval(...)")),
        ("a = {'b': 1, **read()}\nreturn {'x': a.get('c', 2)}", Computed("a.get('c', 2)")),
        ("a = Thing(b=1)\nreturn {'x': a.get('c', 2)}", Computed("a.get('c', 2)")),
        ("return {'x': 9**9**9}", Computed("9 ** 9 ** 9")),
        ("return {'x': 'a' % 3}", Computed("'a' % 3")),
        ("n = 1\nfor n in range(3):\n    pass\nreturn {'x': n}", Computed("n")),
        ("a = []\nfor n in range(3):\n    a.append(n)\nreturn {'x': a}", Computed("a")),
    ],
)
def test_what_is_not_plain_is_named_and_not_run(body, expected):
    assert value(body) == expected


def test_functions_have_parameters_defaults_and_keywords():
    head = "SIZE = 3\ndef helper(a, b=SIZE, *, c=4, **rest):\n    return [a, b, c, rest]\n"

    assert value("return {'x': helper(1, c=5, d=6)}", head=head) == [1, 3, 5, {"d": 6}]


def test_a_parameter_of_the_recipe_is_set_from_outside():
    assert value("return {'x': [size, on]}", {"size": "8", "on": "true"}, parameters="size=1, on=False") == [8, True]


def test_a_parameter_without_a_value_is_one_line():
    with pytest.raises(UserError, match="recipe: size: needs a value; give --set size=VALUE"):
        value("return {'x': size}", parameters="size")


def test_what_a_function_that_is_not_plain_is_called_with():
    """Sizes of a model are in the call of a function whose result is not known."""
    head = "def layers(n, *, dim):\n    found = []\n    for i in range(n):\n        found.append(i)\n    return found\n"
    found = value("return {'x': layers(2, dim=4)}", head=head)

    assert (found.text, found.call) == ("layers(...)", {"_target_": "layers", "_args_": [2], "dim": 4})


def test_a_function_that_a_tool_answers_itself_is_not_followed():
    text = "from tool import ask\ndef ask(a):\n    return 1\ndef recipe() -> Partial:\n    return {'x': ask(2, b=3)}\n"
    answers = {"ask": lambda file, given, named: [file.path.name, given, dict(named)]}

    assert PythonRecipe("nemo", text, "r.py", answers=answers).read("recipe", {}) == {"x": ["r.py", [2], {"b": 3}]}


@pytest.mark.parametrize(
    "how", ["from . import SIZES, sub", "from .more import SIZES, sub", "from pack.more import SIZES, sub"]
)
def test_files_of_the_package_are_followed(tmp_path, how):
    (tmp_path / "pack").mkdir()
    for name in ("__init__", "more"):
        (tmp_path / f"pack/{name}.py").write_text("SIZES = {'a': 1}\ndef sub(b):\n    return b + SIZES['a']\n")
    text = f"{how}\ndef recipe() -> Partial:\n    return {{'x': [SIZES['a'], sub(2)]}}\n"

    assert PythonRecipe("nemo", text, str(tmp_path / "pack/r.py")).read("recipe", {}) == {"x": [1, 3]}


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("from torchtitan.trainer import Trainer\n", "torchtitan"),
        ("from . import model_registry\nx = model_registry('8B')\n", "torchtitan"),
        ("from megatron.bridge import AutoBridge\n", "bridge"),
        ("from utils import WorkloadBaseConfig\nA = WorkloadBaseConfig()\n", "bridge"),
        ("import nemo_run as run\n", "nemo"),
        ("def f():\n    from nemo.collections import llm\n", "nemo"),
        ("import nemo_text_processing\nfrom megatron.core import parallel_state\n", None),
        ("x = 'import torchtitan'  # megatron.bridge\n", None),
    ],
)
def test_whose_a_file_is(text, form):
    assert recognize_python(Modules().parse(text, Path("r.py"), "r.py")) == form


@pytest.mark.parametrize(
    ("form", "names"),
    [("torchtitan", ["a", "d"]), ("nemo", ["d"]), ("bridge", ["PLAN", "OTHER"])],
)
def test_which_names_are_recipes(form, names):
    text = "PLAN = WorkloadBaseConfig()\nOTHER = PLAN\n_P = PLAN\nN = 1\ndef a(): return 1\ndef _b(): return 1\n"
    text += "def c(n): return n\ndef d(n=1) -> run.Partial: return n\ndef e() -> run.Partial: pass\n"

    assert recipe_names(Modules().parse(text, Path("r.py"), "r.py"), form) == names


def test_functions_that_call_each_other_twice_end():
    twice = "\n".join(f"def f{n}(): return [f{n + 1}(), f{n + 1}()]" for n in range(39))
    found = value("return {'x': f0()}", head=f"{twice}\ndef f39(): return 1\n")

    assert isinstance(found, list)


@pytest.mark.parametrize(
    "head",
    [
        "def helper(a):\n    return helper(a)\n",
        "A = B\nB = A\ndef helper(a):\n    return A\n",
        "def helper(a):\n    raise ValueError(a)\n",
    ],
)
def test_what_never_ends_is_not_known(head):
    assert isinstance(value("return {'x': helper(1)}", head=head), Computed)


NEMO = "import nemo_run as run\ndef f() -> run.Partial:\n    "
SIZE = NEMO + (
    "return run.Partial(pretrain, model=run.Config(Llama3Config8B), "
    "data=run.Config(M, seq_length=size(), micro_batch_size=1))\n"
)


def test_what_only_running_decides_is_noted():
    text = "def recipe(size=open('s')) -> Partial:\n    a = 1\n    if size > 2:\n        a = 2\n    print(a)\n"
    python = PythonRecipe("nemo", text + "    b = Thing(c=a)\n    b.build()\n    return b\n", "r.py")
    found = python.read("recipe", {})
    why = "not followed, as only running the file tells"

    assert (found["c"], python.notes) == (1, [f"line 3, if size > 2: {why}", f"line 7, b.build(): {why}"])


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("from nemo import a\ndef f(:\n", "r.py: is not Python: "),
        ("from nemo import a\nx = 1\n", "no function returns a recipe; give the config that the run writes"),
        (NEMO + "return g()\n", "only running it tells what it returns"),
        (NEMO + "a = dict()\n    a.b = a\n    return a\n", "more than 100,000"),
        (NEMO + "return {'x': " + "(" * 3000 + "1" + ")" * 3000 + "}\n",
         "r.py: (is not Python|f: is nested too deep)"),
        (SIZE,
         r"data.seq_length = 'size\(...\)': only running the file tells; give --set seq-length=VALUE, or the config"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_read_is_one_line(tmp_path, text, line):
    (tmp_path / "r.py").write_text(text)

    with pytest.raises(UserError, match=line):
        read_recipe(tmp_path / "r.py", "dgx-h100")


def test_a_value_that_is_not_plain_can_be_set(tmp_path):
    (tmp_path / "r.py").write_text(SIZE)
    recipe = read_recipe(tmp_path / "r.py", "dgx-h100", additions=Additions(settings={"seq-length": "4096"}))

    assert recipe.table["batch"]["seq_len"] == 4096
