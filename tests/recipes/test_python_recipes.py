"""Functions of a Python file as values: what is followed, what stays a call, and what is named as not plain."""

import pytest
from runcast.simulator.base.errors import UserError
from runcast.simulator.formats.recipes.python_recipes import Call, PythonFile


def returned(body, more=""):
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    return PythonFile(f"{more}\ndef recipe():\n{lines}", "r.py").call("recipe")


@pytest.mark.parametrize(
    ("body", "table"),
    [
        ("return Config(a=1, b=Sub(c=[1, 2.5, 'x', None, True]))", {"a": 1, "b": {"c": [1, 2.5, "x", None, True]}}),
        ("return Config(a=2 * 4096 + -1, b=7 // 2, c=2**10, d=3 > 2, e=not 1)",
         {"a": 8191, "b": 3, "c": 1024, "d": True, "e": False}),
        ("c = Config(a=1)\nc.a = 2\nc.new.deep = 3\nreturn c", {"a": 2, "new": {"deep": 3}}),
        ("a, b = 1, (2, 3)\nreturn Config(a=a, b=b[1])", {"a": 1, "b": 3}),
        ("n = 1\nn += 2\nreturn Config(n=n)", {"n": 3}),
        ("t = {'a': 1, **dict(b=2)}\nt['c'] = 3\nreturn Config(**t)", {"a": 1, "b": 2, "c": 3}),
        ("l = [1]\nl.append(2)\nl.extend([3])\nreturn Config(l=[0, *l])", {"l": [0, 1, 2, 3]}),
        ("if 2 > 1 and 'a' in ['a']:\n    n = 1\nelse:\n    n = 2\nreturn Config(n=n if n else 0)", {"n": 1}),
        ("return replace(Config(a=1, b=Sub(c=2)), a=3)", {"a": 3, "b": {"c": 2}}),
        ("return Config(a=os.cpu_count(), b=f'{x}', c=Config.default)",
         {"a": "`os.cpu_count(...)`", "b": "`f'{x}'`", "c": "`Config.default`"}),
        ("for n in range(3):\n    pass\nreturn Config(n=n)", {"n": "`n`"}),
        ("return Config(n=9**9**9, m='a' * 10**9)", {"n": "`9 ** 9 ** 9`", "m": "`'a' * 10 ** 9`"}),
        ("return Config(n=1 / 0)", {"n": "`1 / 0`"}),
    ],
)  # fmt: skip
def test_what_a_function_returns(body, table):
    assert returned(body).table() == table


def test_functions_of_the_file_are_followed_with_their_arguments():
    more = "SIZE = 4\ndef sub(a, b=SIZE, *, c, **more):\n    return Sub(a=a, b=b, c=c, **more)\n"
    more += "def change(config, n):\n    config.n = n\n"
    config = returned("c = Config(s=sub(1, c=3, d=5))\nchange(c, SIZE)\nreturn c", more)

    assert config.table() == {"s": {"a": 1, "b": 4, "c": 3, "d": 5}, "n": 4}


def test_a_function_that_is_not_plain_stays_a_call():
    more = "def layers(*, n, dim):\n    found = []\n    for i in range(n):\n        found.append(i)\n    return found\n"
    config = returned("return Config(layers=layers(n=2, dim=4))", more)

    assert config.table() == {"layers": {"n": 2, "dim": 4}}


def test_a_copy_is_its_own():
    config = returned("a = Config(s=Sub(n=1))\nb = deepcopy(a)\nb.s.n = 2\nreturn Both(a=a, b=b)")

    assert config.table() == {"a": {"s": {"n": 1}}, "b": {"s": {"n": 2}}}


def test_statements_that_are_not_followed_are_named():
    body = "c = Config()\n    if x:\n        c.n = 1\n    c.build()\n    return c"
    file = PythonFile(f"def recipe():\n    {body}", "r.py")
    file.call("recipe")

    assert file.unread == ["if x: c.n = 1", "c.build()"]


def test_a_file_without_recipes_is_one_line():
    with pytest.raises(UserError, match=r"^r.py: holds no recipes: functions"):
        PythonFile("def _a(): return 1", "r.py").choose("a")


def test_recipes_are_functions_that_need_nothing_and_return_something():
    text = "def a(): return 1\ndef _b(): return 1\ndef c(n): return n\ndef d(n=1): return n\ndef e(): pass\n"

    assert PythonFile(text, "r.py").recipes == ("a", "d")


@pytest.mark.parametrize("text", ["def a(:", "x = " + "(" * 500, "x = '\0'"])
def test_what_is_no_python_is_one_line(text):
    with pytest.raises(UserError, match=r"^r.py: is not Python: [^\n]*$"):
        PythonFile(text, "r.py")


def test_functions_that_call_each_other_for_ever_end():
    twice = "\n".join(f"def f{n}(): return [f{n + 1}(), f{n + 1}()]" for n in range(39))
    file = PythonFile(f"def a(): return a()\n{twice}\ndef f39(): return 1", "r.py")

    assert file.call("a") == Call("a")
    with pytest.raises(UserError, match="its recipes take more than 30,000 steps to read"):
        file.call("f0")
