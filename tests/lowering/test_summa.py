"""2-D tensor parallelism: exchanges, bytes, FLOP and memory of a grid against SUMMA's closed forms."""

from collections import Counter

import pytest
from runcast.simulator.base.errors import UserError
from runcast.simulator.base.op_kinds import ATTENTION, PRODUCT, kinds_of_form
from runcast.simulator.models.kernels import Kernel, flop
from runcast.simulator.profile import PROVENANCE
from runcast.simulator.program import Place
from runcast.simulator.systems.train_step.lower.assembly import Assembly
from runcast.simulator.systems.train_step.lower.piece import Tables
from runcast.simulator.systems.train_step.lower.summa import GridWriter
from runcast.simulator.systems.train_step.memory import static_bytes

from .steps import (
    DIM,
    HEADS,
    HIDDEN,
    INTER,
    KV_HEADS,
    LAYER,
    LAYERS,
    MOE,
    SEQ,
    TABLE,
    WORDS,
    ops,
    program,
    resolved,
    run,
)

QKV = (HEADS + 2 * KV_HEADS) * DIM
PRODUCTS = {"qkv": (QKV, HIDDEN), "proj": (HIDDEN, HEADS * DIM), "up": (2 * INTER, HIDDEN), "down": (HIDDEN, INTER)}
"""Columns and summed size of each product of a layer."""


def grid(q, micro_batches=1, **tables):
    """A step of one replica on q x q ranks, q sequences per micro-batch."""
    parallel = {"tp": q * q, "tp_2d": True, **tables.pop("parallel", {})}
    batch = {"micro": q, "global": q * micro_batches}
    return resolved(q * q, micro_batches, parallel=parallel, batch=batch, **tables)


def table(made, lane, layer):
    """(kind, bytes): how many of them on a lane in a layer."""
    found = [op for op in ops(made, lane=lane) if made.tags["layer"][op] == layer]
    return Counter((made.kind_of(op), int(made.bytes[op])) for op in found)


@pytest.mark.parametrize("q", [2, 4])
def test_each_product_has_two_q_exchanges_of_these_bytes(q):
    made = grid(q).program
    tokens = SEQ  # q sequences over q rows
    row, column = Counter(), Counter()
    for n, k in PRODUCTS.values():
        a, b = tokens * k // q * 2, n // q * (k // q) * 2
        row += Counter({("broadcast", a): 2 * q}) + Counter({("reduce", a): q})  # C = A B, B' = A^T C'; A' = C' B^T
        column += Counter({("broadcast", b): 2 * q}) + Counter({("reduce", b): q})  # C = A B, A' = C' B^T; B' = A^T C'
    row += Counter({("all_reduce", tokens * 4): 2 * 2})  # sums of squares of two norms, there and back
    assert (table(made, "tp_row", 1), table(made, "tp_col", 1)) == (row, column)


def test_rows_are_neighbours_and_columns_are_strided():
    made = grid(2).program
    groups = {lane: {made.groups[made.group[op]] for op in ops(made, lane=lane)} for lane in ("tp_row", "tp_col", "tp")}
    assert groups == {"tp_row": {(0, 1)}, "tp_col": {(0, 2)}, "tp": set()}


def test_embedding_and_loss():
    q, made = 2, grid(2).program
    panel, states = WORDS // q * (HIDDEN // q) * 2, SEQ * HIDDEN // q * 2
    row, column = table(made, "tp_row", -1), table(made, "tp_col", -1)
    logits = {("broadcast", states): 2 * q, ("reduce", states): q}
    assert row == {**logits, ("all_reduce", 3 * 4 * SEQ): 1, ("all_reduce", 4 * SEQ): 2}
    assert column == {("broadcast", panel): 3 * q, ("reduce", panel): 2 * q}  # logits and back, and the table itself


@pytest.mark.parametrize("q", [2, 4])
def test_ranks_together_compute_what_one_would(q):
    def total(made):
        kinds = kinds_of_form(PRODUCT, ATTENTION)
        found = [op for op in range(len(made)) if made.kind_of(op) in kinds]
        return sum(flop(Kernel(made.kind_of(op), "", "", tuple(made.shape[op].tolist()), "")) for op in found)

    alone = program(batch={"micro": q, "global": q})
    assert q * q * total(grid(q).program) == total(alone)


@pytest.mark.parametrize("q", [2, 4])
def test_each_rank_holds_its_part_of_activations_and_matrices(q):
    alone, mine = resolved(batch={"micro": q, "global": q}), grid(q)
    whole, part = (sum(buffer.bytes for buffer in one.program.buffers) for one in (alone, mine))
    assert part == whole / q**2 > 0
    matrices, norms = LAYERS * (LAYER - 2 * HIDDEN) + 2 * TABLE, (2 * LAYERS + 1) * HIDDEN
    weights = [static_bytes(one, 0)["weights"] for one in (alone, mine)]
    assert weights == [2 * (matrices + norms), 2 * (matrices / q**2 + norms / q)]


def test_panels_have_two_buffers_each():
    q = 2
    plain, mine = resolved(batch={"micro": q, "global": q}), grid(q)
    assert static_bytes(plain, 0).get("exchange buffers", 0) == 0
    largest = max(SEQ * k // q + n // q * (k // q) for n, k in PRODUCTS.values())
    assert static_bytes(mine, 0)["exchange buffers"] == 2 * 2 * largest


@pytest.mark.parametrize(
    ("kind", "panel", "multiply", "reduce", "expected"),
    [
        ("gemm", 1, 3, 0, 1 + 4 * 3),  # panels hide behind products
        ("gemm", 3, 1, 0, 4 * 3 + 1),  # products behind panels
        ("dgrad", 1, 3, 2, 1 + 4 * 3 + 2),
        ("wgrad", 1, 2, 3, 1 + 2 + 4 * 3),  # sums take longest
    ],
)
def test_panels_and_sums_run_beside_products(kind, panel, multiply, reduce, expected):
    tables = Tables()
    writer = GridWriter(grid(4).plan)
    done = writer.compute([Kernel(kind, "one", "mlp", (8, 8, 8), "bf16")] * 4)
    made = Assembly(tables, [Place("grid", tuple(range(16)))])
    made.stamp(writer.piece(tables, [[0]], [done]), 0, (0, 0, "F"))
    assert run(made.program(), {"broadcast": panel, kind: multiply, "reduce": reduce}).makespan_s == expected


def test_a_reduce_takes_as_long_as_a_broadcast_and_is_less_sure():
    step = grid(2)
    cast, summed = (
        next(op for op in ops(step.program, lane="tp_row", kind=kind)
             if step.program.bytes[op] == SEQ * HIDDEN // 2 * 2)
        for kind in ("broadcast", "reduce")
    )  # fmt: skip
    assert step.costs.work_s[summed] == step.costs.work_s[cast] > 0
    assert step.costs.spread[summed] > step.costs.spread[cast]
    assert PROVENANCE[step.costs.provenance[summed]] == "assumed"


def test_columns_over_nodes_pay_for_the_network():
    step = grid(4)  # two nodes of 8: a row lies in one of them, a column in both
    first = {lane: ops(step.program, lane=lane, kind="broadcast")[0] for lane in ("tp_row", "tp_col")}
    links = {
        lane: {step.cluster.links[link].kind for link in step.costs.demand[step.costs.row[op]]}
        for lane, op in first.items()
    }
    assert ("nic" in links["tp_row"], "nic" in links["tp_col"]) == (False, True)


@pytest.mark.parametrize(
    ("tables", "line"),
    [
        ({"parallel": {"tp": 2}}, "tp = 2 is no square: such as 1 or 4"),
        ({"parallel": {"tp": 4, "sequence_parallel": True}}, "sequence_parallel = false"),
        ({"parallel": {"tp": 4}, "model": MOE}, "has experts: dense models with plain attention only"),
        ({"parallel": {"tp": 4, "cp": 2}}, "neither with cp above 1"),
        ({"parallel": {"tp": 4}, "batch": {"micro": 1}}, "batch.micro = 1: must be a multiple of the grid's side, 2"),
        ({"parallel": {"tp": 4}, "overrides": {"intermediate_size": 129}}, "width of the network = 129"),
        ({"parallel": {"tp": 4}, "model": {"preset": "deepseek-v3", "overrides": {}}}, "experts and latent attention"),
    ],
)
def test_what_a_grid_does_not_go_with(tables, line):
    parallel = {**tables.pop("parallel"), "tp_2d": True}
    batch = {"micro": 2, "global": 16, **tables.pop("batch", {})}
    with pytest.raises(UserError, match=rf"parallel.tp_2d = True: .*{line}"):
        assert resolved(8, parallel=parallel, batch=batch, **tables).plan


def test_a_grid_has_an_overlap_of_its_own():
    with pytest.raises(UserError, match=r"overlap.tp = True: does not go with parallel.tp_2d = true"):
        resolved(8, parallel={"tp": 4, "tp_2d": True}, overlap={"tp": True})


@pytest.mark.parametrize("name", ["1f1b", "zb-h1", "interleaved", "dualpipe-v"])
@pytest.mark.parametrize("zero", [1, 3])
def test_a_grid_goes_with_pipelines_and_sharding(name, zero):
    parallel = {"tp": 4, "tp_2d": True, "pp": 2, "zero": zero}
    step = resolved(16, parallel=parallel, batch={"micro": 2, "global": 16}, schedule={"name": name})
    assert run(step.program, {"gemm": 1.0}).makespan_s > 0
