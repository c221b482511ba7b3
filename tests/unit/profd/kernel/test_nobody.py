"""Uids that nobody has, as this user namespace maps them."""

from __future__ import annotations

from pathlib import Path

import pytest
from profd.kernel import nobody

ALL = "         0          0 4294967295\n"
CONTAINER = "0 100000 65536\n"
PARTS = f"0 100000 65536\n{nobody.UNUSED} 200000 {nobody.COUNT}\n"
TOO_FEW = f"0 100000 {nobody.UNUSED + nobody.COUNT - 1}\n"


@pytest.mark.parametrize(
    ("uids", "gids", "first"),
    [
        (ALL, ALL, nobody.UNUSED),
        (PARTS, ALL, nobody.UNUSED),
        (CONTAINER, ALL, 65520),
        (ALL, CONTAINER, 65520),
        (TOO_FEW, TOO_FEW, 65520),
        ("", "", 65520),
        ("nonsense", ALL, 65520),
    ],
)
def test_the_unused_ones_where_they_are_mapped(tmp_path: Path, uids: str, gids: str, first: int) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "uid_map").write_text(uids)
    (tmp_path / "self" / "gid_map").write_text(gids)
    assert nobody.first(tmp_path) == first


def test_all_are_within_the_range_that_nobody_uses() -> None:
    assert nobody.UNUSED >= 1879048192
    assert nobody.UNUSED + nobody.COUNT - 1 <= 2147483647
    assert {*nobody.SAMPLERS, nobody.PORTERS, nobody.STREAMER} == set(range(nobody.FIRST, nobody.FIRST + nobody.COUNT))
