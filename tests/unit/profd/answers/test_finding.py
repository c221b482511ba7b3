"""Words that findings are made of."""

from __future__ import annotations

import pytest
from profd.answers.finding import ordinal


@pytest.mark.parametrize(
    ("number", "word"),
    [
        (1, "1st"),
        (2, "2nd"),
        (3, "3rd"),
        (4, "4th"),
        (10, "10th"),
        (11, "11th"),
        (13, "13th"),
        (22, "22nd"),
        (112, "112th"),
    ],
)
def test_ordinals(number: int, word: str) -> None:
    assert ordinal(number) == word
