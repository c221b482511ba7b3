"""What is believed of what the reader of locks prints: it has read hostile memory."""

from __future__ import annotations

import pytest
from profd.sources.pyspy.joins import held, wait_for_gil

IDENTS = {140_000_000: 11, 150_000_000: 12}


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (b"12 ident 140000000\n13 thread 11\n", {12: 11, 13: 11}),
        (b"12 ident 7\n", {}),  # no thread of this process
        (b"12 ident 150000000\n12 thread 12\n", {}),  # itself
        (b"12 thread 0\n-1 thread 3\n12 thread\nx\n\xff\x00\n12 thread 11 and more\n", {}),
        (b"9" * 99 + b" thread 11\n12 thread " + b"9" * 99, {}),
        (b"", {}),
    ],
)
def test_lines(said: bytes, found: dict[int, int]) -> None:
    assert held(said, IDENTS) == found


def test_those_that_wait_for_the_gil() -> None:
    said = b"7 gil\n8 thread 7\n9 gil \n10 gil\n12345678901 gil\n\xff gil\n"
    assert wait_for_gil(said) == {7, 10}
    assert held(b"7 gil\n", IDENTS) == {}
