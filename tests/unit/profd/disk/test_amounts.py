from __future__ import annotations

import pytest
from profd.disk.amounts import amount
from profd.limits import GiB, MiB


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (1023, "1023 bytes"),
        (512 << 10, "512 KiB"),
        (3 * MiB // 2, "1.5 MiB"),
        (10 * GiB, "10 GiB"),
        (5000 * GiB, "5000 GiB"),
    ],
)
def test_bytes_in_words(count: int, words: str) -> None:
    assert amount(count) == words
