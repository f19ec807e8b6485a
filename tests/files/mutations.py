"""Faults in files: values of other types, keys that are gone or strange, bytes that are cut, doubled or no text."""

import gzip
import json
import random
import re
import tomllib
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from math import inf, nan
from typing import Any

import yaml
from runcast.simulator.base.files import to_toml

VALUES = (
    *(0, 1, -1, 3, 2.5, -0.5, 10**6, 10**9, 10**12, 10**18, 10**30, 10**400, 1e30, 1e308, 1e-308, inf, -inf, nan),
    *("", " ", "x", "nan", "1 GB", "1e309 GB", "1 ns", "9" * 5000, "a" * 300, "/dev/null", "a/../b", "=1+1"),
    *("\x1b[31mred\x07\r\n", "\u202eé漢🚀\x85", True, False, {}, {"a": 1}, {"a": {"b": []}}),
    *([], [[]], [[[1]]], [1, 1, 1], ["x", "x"]),
)
KEYS = ("x", "a" * 300, "\x1b[31m", "é漢", "base", "name", "kind")
WORDS = (
    *(b"0", b"-1", b"1e308", b"1e400", b"1e-320", b"nan", b"inf", b"9" * 5000, b"10000000000000", b"", b"x", b"=1"),
    *(b"\x1b[31m\x07", b"\xff", "漢\u202e".encode(), b"a" * 700, b'"', b"[", b"{"),
)
_READERS: dict[str, tuple[Callable[[bytes], Any], Callable[[Any], str]]] = {
    ".toml": (lambda data: tomllib.loads(data.decode()), to_toml),
    ".json": (json.loads, json.dumps),
    ".yaml": (yaml.safe_load, lambda table: yaml.safe_dump(table, allow_unicode=True)),
    ".jsonl": (
        lambda data: [json.loads(line) for line in data.splitlines()],
        lambda records: "".join(f"{json.dumps(record)}\n" for record in records),
    ),
}


def mutate(data: bytes, name: str, rng: random.Random) -> bytes:
    """The content of a file of this name with a fault in it: a changed table where it is one, or changed bytes."""
    suffix = name[name.rfind(".") :]
    if suffix in _READERS and rng.random() < 0.7:
        read, write = _READERS[suffix]
        with suppress(ValueError, TypeError):  # what this language cannot say
            return write(_mutate_table(read(data), rng)).encode()
    return _mutate_bytes(data, rng)


def _places(table: Any) -> Iterator[tuple[Any, Any]]:
    """Every key of nested tables, and every index of lists, with what holds them."""
    items = table.items() if isinstance(table, dict) else enumerate(table) if isinstance(table, list) else ()
    for key, value in items:
        yield table, key
        yield from _places(value)


def _mutate_table(table: Any, rng: random.Random) -> Any:
    table = deepcopy(table)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        holder, key = rng.choice(list(_places(table)))
        act = rng.random()
        if act < 0.7:
            holder[key] = deepcopy(rng.choice((*VALUES, None)))
        elif act < 0.85:
            del holder[key]
        elif isinstance(holder, dict):
            holder[rng.choice(KEYS)] = deepcopy(rng.choice(VALUES))
    return table


def _mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    act, at = rng.random(), rng.randrange(len(data) + 1)
    if act < 0.45:
        return _replace(data, rb"\d+(\.\d+)?", rng)
    if act < 0.65:
        return _replace(data, rb"[\w.-]+", rng)
    if act < 0.75:
        return _replace(data, rb"[^\n]*\n", rng)
    if act < 0.85:
        return data[:at] + rng.choice(WORDS) + data[at:]
    text = data.decode("utf-8", "replace")
    whole = (
        *(data[:at], b"", data * 2, b"\xef\xbb\xbf" + data, text.encode("utf-16"), text.replace("\n", "\r").encode()),
        *(gzip.compress(data), gzip.compress(data)[:-9], b"[" * 100_000, b'{"a":' * 50_000, b"\n" * 20),
    )
    return rng.choice(whole)


def _replace(data: bytes, pattern: bytes, rng: random.Random) -> bytes:
    """One of the pieces of this form replaced by a strange one."""
    if not (found := list(re.finditer(pattern, data))):
        return data
    one = rng.choice(found)
    return data[: one.start()] + rng.choice(WORDS) + data[one.end() :]
