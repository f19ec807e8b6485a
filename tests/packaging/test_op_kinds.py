"""What is known of a kind of op is in one place."""

import ast
from pathlib import Path

import pytest
import runcast.simulator
from runcast.simulator.base.op_kinds import KINDS, op_kind
from runcast.simulator.costs import PHASES
from runcast.simulator.costs.forms import _FORMS, _STREAMS, _WHOLE
from runcast.simulator.systems.weight_update.report import PHASES as STEPS

SIMULATOR = Path(runcast.simulator.__file__).parent

OF_OTHER_THINGS = {
    "base/op_kinds.py",
    "costs/phases.py",  # names of phases
    "profile/forms/collective.py",  # bus factors, as nccl-tests defines them
    "collectives/backends.py",  # what Gloo and MPI choose
    "collectives/nccl.py",  # collectives that NCCL does round a ring
    "collectives/networks.py",  # collectives that are rings in NCCL's models
    "formats/samples/published.py",  # collectives of nccl-tests that sum
    "systems/run/history.py",  # where the time of a run goes
    "figures/theme.py",  # its colours
}


def tables(path):
    """Literals at the top of a module that hold three kinds or more."""
    for node in ast.parse(path.read_text()).body:
        for literal in ast.walk(node) if isinstance(node, ast.Assign | ast.AnnAssign) else ():
            if isinstance(literal, ast.Dict | ast.Tuple | ast.List | ast.Set):
                items = literal.keys if isinstance(literal, ast.Dict) else literal.elts
                words = {item.value for item in items if isinstance(item, ast.Constant)}
                if len(words & (KINDS.keys() - set(STEPS) - set(PHASES))) >= 3:
                    yield literal.lineno


def test_no_other_module_has_a_table_of_kinds():
    modules = {path.relative_to(SIMULATOR).as_posix(): path for path in SIMULATOR.rglob("*.py")}
    found = {name for name, path in modules.items() if list(tables(path))}

    assert found <= OF_OTHER_THINGS | {"costs/forms.py"}  # a price for each form


def test_every_kind_of_an_update_has_a_phase():
    kinds = [kind for kind in KINDS.values() if kind.step]

    assert all(kind.step in STEPS for kind in kinds)


@pytest.mark.parametrize("exchanges", [_STREAMS, _WHOLE])
def test_every_form_is_priced_once_however_ranks_exchange(exchanges):
    forms = [form for of in (_FORMS, exchanges) for form in (*of.one_by_one, *of.as_arrays)]

    assert sorted(forms) == sorted({kind.form for kind in KINDS.values()})


def test_every_kind_of_a_step_has_a_phase_that_reports_know():
    assert {kind.phase for kind in KINDS.values() if kind.phase} <= set(PHASES)


def test_gradients_are_kinds_too():
    gradients = {kind.input_gradient for kind in KINDS.values()} | {kind.weight_gradient for kind in KINDS.values()}

    assert gradients - {""} <= KINDS.keys()


def test_an_unknown_kind_is_named():
    with pytest.raises(KeyError, match="no kind of op is called 'softmaxx'"):
        op_kind("softmaxx")
