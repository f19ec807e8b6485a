"""Names that our pages once gave to modules still lead to them."""

from importlib import import_module

import pytest
from runcast.simulator.old_names import MOVED


@pytest.mark.parametrize("old", MOVED)
def test_an_old_name_leads_to_the_same_things_with_a_warning(old):
    new = import_module(MOVED[old])
    with pytest.warns(DeprecationWarning, match=f"is now {MOVED[old]}"):
        module = import_module(old)
    assert {name: getattr(module, name) for name in new.__all__} == {name: getattr(new, name) for name in new.__all__}
