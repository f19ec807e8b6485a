"""Recipes that are Python: what is followed of a file's text, and that nothing of it is run."""

import pytest
from runcast.simulator.base.errors import UserError
from runcast.simulator.formats.recipes import Additions, read_recipe
from runcast.simulator.formats.recipes.arguments import Computed
from runcast.simulator.formats.recipes.python_recipe import PythonRecipe

LIBRARY = {"common": {"train": {"size": 8}}, "pair": [{"first": 1}, {"second": 2}],
           "switch": {"changes": {"model": {"flex": True}}, "unless_none": 1}}  # fmt: skip


def value(body, settings=(), head="", parameters=""):
    lines = "\n    ".join(body.strip().splitlines())
    imports = "from tool import common, pair, switch, Thing, torch"
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
    ],
)
def test_what_is_not_plain_is_named_and_not_run(body, expected):
    assert value(body) == expected


def test_functions_have_parameters_defaults_and_keywords():
    head = "SIZE = 3\ndef helper(a, b=SIZE, *, c=4, **rest):\n    return [a, b, c, rest]\n"

    assert value("return {'x': helper(1, c=5, d=6)}", head=head) == [1, 3, 5, {"d": 6}]


def test_a_parameter_of_the_recipe_is_set_from_outside():
    assert value("return {'x': [size, on]}", {"size": "8", "on": "true"}, parameters="size=1, on=False") == [8, True]


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


def test_a_branch_that_only_running_decides_is_noted():
    text = "def recipe(size=open('s')) -> Partial:\n    a = 1\n    if size > 2:\n        a = 2\n    return dict(x=a)\n"
    python = PythonRecipe("nemo", text, "r.py", {})
    found = python.read("recipe", {})

    assert (found, python.notes) == ({"x": 1}, ["line 3, if size > 2: not followed, as only running the file tells"])


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
