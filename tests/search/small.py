"""Ten and more small spaces, each as a table and what is wanted, and what brute force finds in them."""

from functools import cache

from runcast.simulator.answers.search import Wanted
from runcast.simulator.answers.search.explore import measure
from runcast.simulator.answers.search.records import SIMULATED, Row, pareto
from runcast.simulator.answers.search.run import make_question
from runcast.simulator.base.memo import Memo
from runcast.simulator.scenario import change

DENSE = {
    "kind": "train_step",
    "cluster": "dgx-h100",
    "model": {"preset": "llama3-8b", "overrides": {"num_hidden_layers": 4}},
    "batch": {"global": 16, "seq_len": 2048},
}
EXPERTS = {
    "kind": "train_step",
    "cluster": "dgx-h100",
    "model": {"preset": "qwen3-30b-a3b", "overrides": {"num_hidden_layers": 4}},
    "batch": {"global": 16, "seq_len": 1024},
}
SENDER = {
    "kind": "weight_update",
    "cluster": "dgx-h100",
    "nodes": 2,
    "stack": "miles",
    "model": {"preset": "llama3-8b", "overrides": {"num_hidden_layers": 4}},
    "update": {"method": "single_sender", "trainer": {"gpus": 8, "tp": 2}, "inference": {"tp": 4}},
}
SERVERS = {
    "kind": "weight_update",
    "cluster": "h20-hgx",
    "model": {"preset": "qwen3-30b-a3b", "overrides": {"num_hidden_layers": 4}},
    "update": {"inference": {"tp": 8}},
}
LESS = {"mode": "full"}
PLAIN = {"parallel.zero": 1, "offload": {}}
ALIKE = {key: [value] for key, value in PLAIN.items()}
FEW = {**ALIKE, "batch.micro": [1], "parallel.cp": [1, 2], "parallel.tp": [1, 4], "recompute": [{"mode": "none"}, LESS]}
NO_CP = {**ALIKE, "batch.micro": [1, 2], "parallel.cp": [1], "parallel.tp": [2, 4]}

SPACES = {
    "dense": (DENSE, {}, "tokens_per_s", Wanted(vary=FEW)),
    "little memory": (DENSE, {"cluster.device.memory": "22 GiB"}, "tokens_per_s", Wanted(vary=FEW)),
    "least memory": (DENSE, {"recompute.mode": "selective"}, "memory", Wanted(("1f1b",), NO_CP)),
    "cheapest": (
        DENSE, {"cluster.device.price_usd_per_hour": 3.0}, "cost", Wanted(vary=NO_CP, fix={"recompute": LESS}),
    ),
    "two nodes, one slow": (
        DENSE, {"nodes": 2, "slow": [{"node": 1, "factor": 1.3}]}, "tokens_per_s",
        Wanted(vary=NO_CP, fix={"recompute": {"mode": "none"}}),
    ),
    "other schedules": (
        DENSE, {"batch.global": 32}, "tokens_per_s",
        Wanted(("gpipe", "zb-h1", "zb-v", "v-half", "dualpipe", "dualpipe-v", "interleaved-overlap"),
               NO_CP, {"recompute": {"mode": "none"}}),
    ),
    "sharded less": (
        DENSE, {}, "tokens_per_s", Wanted(("1f1b",), {**NO_CP, "parallel.zero": [0, 1, 2, 3]}, {"recompute": LESS}),
    ),
    "experts": (
        EXPERTS, {}, "tokens_per_s",
        Wanted(("1f1b",), {"parallel.ep": [1, 4, 8], "parallel.tp": [1, 2], **NO_CP}, {"recompute": {"mode": "none"}}),
    ),
    "experts in little memory": (
        EXPERTS, {"cluster.device.memory": "18 GiB", "experts.routing": "zipf"}, "memory",
        Wanted(("1f1b",), {**NO_CP, "parallel.ep": [4, 8], "parallel.tp": [1, 2], "batch.micro": [1]}),
    ),
    "uneven stages": (
        DENSE, {"model.overrides.num_hidden_layers": 5, "parallel.embedding_as_layer": True}, "tokens_per_s",
        Wanted(("1f1b", "interleaved"), NO_CP, {"recompute": {"mode": "full", "layers": 1}}, uneven=True),
    ),
    "from trainers": (
        SENDER, {}, "update_time", Wanted(vary={"update.bucket": [2**29, 2**31], "update.trainer.gpus": [4, 8]}),
    ),
    "pause": (SENDER, {}, "pause", Wanted(vary={"update.bucket": [2**29, 2**31]}, fix={"update.trainer.gpus": 8})),
    "parameter servers": (SERVERS, {}, "update_time", Wanted()),
}  # fmt: skip


def table_of(name):
    table, changes, *_ = SPACES[name]
    return change(table, changes, name)


@cache
def brute_force(name):
    """Every point that no rule cuts, simulated: rows, without any bound."""
    _, _, objective, wanted = SPACES[name]
    question, space = make_question(table_of(name), None, objective, wanted, 0.0, name)
    (points, cuts), memo = space.points(), Memo()
    return [measure(question, Row(point), memo) for point in points], cuts


def best_value(rows, question):
    return min(question.value(row.measured) for row in rows if row.status == SIMULATED)


def pareto_values(rows):
    return {rows[number].measured.amounts for number in pareto(rows)}
