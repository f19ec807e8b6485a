"""The page of models that no fit has read is what their predictions say."""

import pytest

from .unseen_page import PAGE, page, predict


@pytest.mark.slow
def test_the_page_is_what_is_predicted():
    assert PAGE.read_text() == page(predict())
