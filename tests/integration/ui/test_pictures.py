"""Each chart as a PNG file, which has what the page has."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.ui.conftest import Page, saved


@pytest.mark.parametrize(
    ("part", "chart", "colors"),
    [
        ("Steps", "slider", ("back", "text", "bar", "slow")),
        ("Timeline", "application", ("back", "text", "function", "operator")),
        ("Flame graph", "tree", ("back", "text", "function", "operator")),
    ],
)
def test_a_chart_is_saved_as_it_is_seen(
    page: Page, tmp_path: Path, part: str, chart: str, colors: tuple[str, ...]
) -> None:
    trace = page.traces["before"]
    tab = page.go(f"/trace/{trace}")
    region = tab.get_by_role("region", name=part)
    seen = region.get_by_role(chart).first.bounding_box()
    name, picture = saved(page, region, colors, tmp_path)
    assert name == f"profd-{part.lower().replace(' ', '-')}-{trace}.png"
    assert picture["width"] >= seen["width"]
    assert picture["height"] > seen["height"]
    assert min(picture["pixels"]) > 20, dict(zip(colors, picture["pixels"], strict=True))
    assert page.complaints == []


def test_both_distributions_are_saved(page: Page, tmp_path: Path) -> None:
    before, after = page.traces["before"], page.traces["after"]
    tab = page.go(f"/compare/{before}/{after}")
    name, picture = saved(page, tab.get_by_role("region", name="Steps"), ("back", "bar"), tmp_path)
    assert name == f"profd-steps-of-a-{before}-{after}.png"
    assert min(picture["pixels"]) > 20
