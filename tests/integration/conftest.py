"""Tests that share a fixture of their module run in one process."""

from __future__ import annotations

import pytest

SHARED = ("module", "package")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Else each worker makes one: a daemon takes a second of CPU, a program with torch three."""
    for item in items:
        if shares_a_fixture(item) and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.location[0]))


def shares_a_fixture(item: pytest.Item) -> bool:
    """Of its module, and not only for the life of one test or of all."""
    known = getattr(item, "_fixtureinfo", None)
    found = known.name2fixturedefs.values() if known is not None else ()
    return any(fixture.scope in SHARED for fixtures in found for fixture in fixtures)
