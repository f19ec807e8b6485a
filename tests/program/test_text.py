"""The text form reads back to an equal Program; what cannot be read is a UserError with its line."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runcast.simulator.errors import UserError
from runcast.simulator.program import Program, ProgramBuilder, from_text, to_text, validate
from runcast.simulator.program.check import faults

names = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=12)
few = st.integers(0, 3)


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Every column in use: any names, gaps in ranks, several lanes, byte ranges, pools, tags."""
    b = ProgramBuilder()
    ranks = st.lists(st.integers(0, 40), unique=True, max_size=6).map(sorted)
    places = [b.place(draw(names), draw(ranks)) for _ in range(draw(st.integers(1, 3)))]
    lanes = [b.lane(draw(st.sampled_from(places)), f"{i} {draw(names)}") for i in range(draw(st.integers(1, 4)))]
    memories = st.sampled_from(["device", "host"])
    buffers = [b.buffer(draw(names), draw(st.sampled_from(places)), 1000, draw(memories)) for _ in range(draw(few))]
    pools = [b.pool(draw(names), draw(st.sampled_from(places)), draw(few)) for _ in range(draw(few))]
    some = lambda items: st.lists(st.sampled_from(items), max_size=2) if items else st.just([])  # noqa: E731
    access = st.tuples(st.sampled_from(buffers), few, st.integers(0, 900)) if buffers else st.nothing()
    for op in range(draw(st.integers(0, 6))):
        b.op(
            draw(names),
            draw(st.lists(st.sampled_from(lanes), min_size=1, unique=True)),
            draw(some(range(op))),
            name=draw(names),
            size_bytes=draw(st.integers(0, 2**50)),
            shape=draw(st.lists(st.integers(0, 2**40), max_size=3)),
            dtype=draw(st.sampled_from(["", "bf16", "fp8", 'a "b"'])),
            group=tuple(draw(ranks)),
            root=draw(st.integers(-1, 40)),
            reads=draw(st.lists(access, max_size=2)) if buffers else [],
            writes=draw(st.lists(access, max_size=2)) if buffers else [],
            acquires=draw(some(pools)),
            releases=draw(some(pools)),
            tags={key: draw(few) for key in draw(st.sets(st.sampled_from(["bucket", "round", "micro_batch"])))},
        )
    return b.build()


@settings(max_examples=80, deadline=None)
@given(programs())
def test_text_reads_back(program):
    assert from_text(to_text(program)) == program


@settings(max_examples=50, deadline=None)
@given(programs())
def test_text_is_a_fixed_point(program):
    text = to_text(program)
    assert to_text(from_text(text)) == text


def test_the_form():
    b = ProgramBuilder()
    place, lane = b.place("r0", [0, 1, 2, 7]), 0
    b.lane(place, "h2d")
    target = b.buffer("h2d", place, 4096)
    first = b.op("h2d", [lane], name="h2d b0", size_bytes=4096, writes=[(target, 0, 4096)], tags={"bucket": 0})
    b.op("copy", [lane], [first], dtype="bf16", root=7)
    assert to_text(b.build()) == (
        "runcast program 1\n"
        'place "r0" 0-2,7\n'
        'lane 0 "h2d"\n'
        'buffer "h2d" 0 4096 device\n'
        'op "h2d" "h2d b0" bytes=4096 writes=0:0:4096 bucket=0\n'
        'op "copy" "copy 1" dtype="bf16" root=7 after=0\n'
        "order 0: 0 1\n"
    )


GOOD = 'runcast program 1\nplace "r0" 0\nlane 0 "x"\nbuffer "b" 0 64 device\npool "p" 0 1\nop "k" "k0"\norder 0: 0\n'


def test_the_program_that_the_next_tests_spoil_is_good():
    assert len(from_text(GOOD)) == 1


def spoiled(line: int, text: str) -> str:
    lines = GOOD.splitlines()
    lines[line - 1 : line] = [text]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (1, "runcast program 2"),
        (2, 'place "r0" zero'),
        (2, "place r0 0"),
        (2, 'place "r0" 0 1'),
        (2, 'place "r0" 3-x'),
        (2, 'plaice "r0" 0'),
        (3, "lane 0"),
        (3, 'lane x "x"'),
        (4, 'buffer "b" 0 many device'),
        (4, 'buffer "b" 0 64'),
        (5, 'pool "p" 0'),
        (6, 'op "k"'),
        (6, 'op "k" "k0" bytes'),
        (6, 'op "k" "k0" bytes=x'),
        (6, 'op "k" "k0" after=1,,2'),
        (6, 'op "k" "k0" reads=0:1'),
        (6, 'op "k" "k0" reads=0:1:2:3'),
        (6, 'op "k" "k0" shape=1.5'),
        (6, 'op "k" "k0" bytes=99999999999999999999999'),
        (6, 'op "k" k0'),
        (6, 'op "k\\x" "k0"'),
        (6, "op 5 6"),
        (6, 'op "k" "k0" kind="x"'),
        (6, 'op "k" "k0" bytes=1 bytes=1'),
        (7, "order 1: 0"),
        (7, "order 0: a"),
        (7, "order -1: 0"),
        (7, "order"),
        (8, "order 0: 0"),
    ],
)
def test_malformed_line(line, text):
    with pytest.raises(UserError, match=f"^plan.txt: line {line}: "):
        from_text(spoiled(line, text), "plan.txt")


@pytest.mark.parametrize(
    ("line", "text", "fault"),
    [
        (3, 'lane 4 "x"', "x.* is at place 4, but there are 1"),
        (4, 'buffer "b" 0 -1 device', "buffer 'b' has -1 bytes"),
        (4, 'buffer "b" 3 64 device', "b.* is at place 3, but there are 1"),
        (5, 'pool "p" 0 -2', "pool 'p' has -2 slots"),
        (5, 'pool "p" 9 1', "p.* is at place 9, but there are 1"),
        (6, 'op "k" "k0" after=7', "after names 7, but there are 1"),
        (6, 'op "k" "k0" bytes=-5', "op 'k0' has -5 bytes"),
        (6, 'op "k" "k0" acquires=1', "acquires names 1, but there are 1"),
        (6, 'op "k" "k0" releases=-1', "releases names -1, but there are 1"),
        (6, 'op "k" "k0" reads=1:0:64', "an op accesses buffer 1, but there are 1"),
        (6, 'op "k" "k0" writes=0:1:64', "bytes 1\\+64 lie outside buffer 'b' of 64 bytes"),
        (7, "order 0: 1", "order names 1, but there are 1"),
        (7, "order 0:", "op 'k0' runs on no lane"),
        (7, "order 0: 0 0", "op 'k0' stands twice on one lane"),
    ],
)
def test_ill_formed_program(line, text, fault):
    with pytest.raises(UserError, match=fault):
        from_text(spoiled(line, text))


def test_empty_text():
    with pytest.raises(UserError, match="line 1: expected 'runcast program 1'"):
        from_text("")


@settings(max_examples=80, deadline=None)
@given(programs(), st.data())
def test_damaged_text_is_a_user_error_or_another_program(program, data):
    text = to_text(program)
    at = data.draw(st.integers(0, len(text) - 1))
    damaged = text[:at] + data.draw(st.text(max_size=2)) + text[at + data.draw(few) :]
    try:
        found = from_text(damaged)
    except UserError:
        return
    assert validate(found) is found


def test_tags_and_memories_that_could_not_be_read_back_are_ill_formed():
    builder = ProgramBuilder()
    place = builder.place("r0", [0])
    builder.buffer("b", place, 1, "attic")
    builder.op("work", [builder.lane(place, "x")], tags={"bytes": 1, "a b": 2})

    assert faults(builder.build()) == [
        "buffer 'b' lies in 'attic'; known: device, host",
        "tag 'bytes': expected a word that names no column",
        "tag 'a b': expected a word that names no column",
    ]


def test_a_world_beyond_any_is_refused_before_it_fills_the_memory():
    with pytest.raises(UserError, match=r"line 2: .*more than 10000000 ranks"):
        from_text('runcast program 1\nplace "r" 0-99999999999\n')
