"""What a bounded table forgets first."""

from __future__ import annotations

from profd.model.newest import Newest


def test_what_was_set_longest_ago_goes_first() -> None:
    table = Newest[str, int](2)
    table["a"] = 1
    table["b"] = 2
    table["a"] = 3  # set anew: `b` is now the older
    table["c"] = 4
    assert list(table.items()) == [("a", 3), ("c", 4)]


def test_an_entry_set_anew_drops_no_other() -> None:
    table = Newest[str, int](2)
    for key in ("a", "b", "b"):
        table[key] = 0
    assert list(table) == ["a", "b"]
