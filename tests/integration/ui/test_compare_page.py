"""Two traces compared in a real Chromium: numbers, boxes and colors are those of the commands."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from profclient.cli.flame import layout
from profclient.cli.flame.differences import Differences
from profclient.cli.units import duration

from tests.integration.ui.conftest import SLOW, STEPS, Page, cells

pytestmark = pytest.mark.slow


def test_two_traces_are_compared(page: Page) -> None:
    tab = page.go("/")
    for name in ("before", "after"):
        tab.get_by_role("checkbox", name=f"Compare {page.traces[name]}").check()
    tab.get_by_role("button", name="Compare two").click()
    page.settled()
    assert tab.url.endswith(f"#/compare/{page.traces['before']}/{page.traces['after']}")
    told = page.json("diff", page.traces["before"], page.traces["after"])
    changed = [row for row in told["rows"] if row["change"] != "same"]
    rows = cells(tab, "Changes")
    assert [row[-1] for row in rows] == [row["name"] for row in changed]
    assert [row[1:3] for row in rows] == [[duration(row["a_ns"]), duration(row["b_ns"])] for row in changed]
    assert "aten::mm" in [row[-1] for row in rows if row[0] == "▲ slower"]
    listed = {one["id"]: one["title"] for one in page.json("list")}
    first, second = (listed[page.traces[name]] for name in ("before", "after"))
    assert tab.get_by_text(
        re.compile(rf"^A: {re.escape(first)}, .* ago · B: {re.escape(second)}, .* ago$")
    ).is_visible()
    assert page.complaints == []
    tab.get_by_role("combobox", name="By").select_option("path")
    page.settled()
    assert any(" > " in row[-1] for row in cells(tab, "Changes"))
    assert page.complaints == []


@pytest.mark.parametrize("by", layout.WEIGHTS)
def test_the_flame_graph_of_both_is_that_of_the_command(page: Page, by: str) -> None:
    """Boxes and colors, for widths of B; by time of devices as well, which these traces have not."""
    nodes = page.json("flame", page.traces["before"], page.traces["after"])["nodes"]
    for at, node in enumerate(nodes):
        node |= {"a_device_ns": 7 * at % 5, "b_device_ns": 8 - at}
    page.go("/")
    program = """async ([nodes, by]) => {
      const { boxesOfBoth, scale, shade } = await import('/static/flame_both.js');
      const sight = { by, side: "b", own: false };
      const found = boxesOfBoth(nodes, sight);
      const full = scale(nodes, found.filter((one) => one.depth === 0).reduce((sum, one) => sum + one.width, 0), sight);
      return found.map(({ depth, left, width, node }) => [depth, left, width, node.name, shade(node, full, sight)]);
    }"""
    found = page.tab.evaluate(program, [nodes, by])
    both = Differences(nodes, by, "step")
    expected = [[box.depth, box.left, box.width, box.node["name"], both.look(box)] for box in both.boxes]
    assert found == expected
    assert len({look for *_, look in expected}) > 1


def test_what_became_slower_is_red_and_the_steps_of_both_are_there(page: Page) -> None:
    before, after = page.traces["before"], page.traces["after"]
    tab = page.go(f"/compare/{before}/{after}")
    boxes = tab.get_by_role("tree", name="Flame graph").get_by_role("treeitem")
    looks = {one.inner_text(): one.get_attribute("class") for one in boxes.all()}
    assert "more-3" in looks["aten::mm"]
    assert "alike" in looks["train.py: forward"]  # its callee takes what it itself does not
    assert "A 300.0 us, B 500.0 us per step" in boxes.get_by_text("aten::mm", exact=True).first.get_attribute("title")
    tab.get_by_role("combobox", name="Color: change of").select_option("own time")
    assert "less-3" in boxes.get_by_text("train.py: forward", exact=True).first.get_attribute("class")
    for trace in (before, after):
        (told,) = [one for one in tab.get_by_role("img", name="Steps of").all() if trace_of(one, tab) == trace]
        steps = page.json("steps", trace)
        median = duration(steps["outliers"]["median_ns"])
        assert f"{STEPS} steps: in the middle {median}" in told.get_attribute("aria-label")
    tab.get_by_role("combobox", name="as").select_option("in A")
    assert boxes.get_by_text("aten::mm", exact=True).first.is_visible()
    assert page.complaints == []


def trace_of(chart: Any, tab: Any) -> str:
    """The heading over a chart ends with the trace."""
    return str(chart.evaluate("(one) => one.parentElement.querySelector('h3').textContent")).split()[-1]


def test_what_would_say_more_of_a_trace_is_said_of_both(page: Page) -> None:
    """The daemon's answer about an imported trace has no hint: it is put into that of one of them."""
    before, after = page.traces["before"], page.traces["after"]

    def hinted(route: Any) -> None:
        told = json.loads(route.request.post_data)
        if told["question"] != "window":
            return route.fallback()
        answer = route.fetch()
        hint = "outside operators 92 %: add --stacks (about 0.1 us a call)" if told["trace"] == after else None
        return route.fulfill(response=answer, json={**answer.json(), "hint": hint})

    page.go("/")
    page.tab.route("**/api/ask", hinted)
    tab = page.go(f"/compare/{before}/{after}")
    assert tab.get_by_text("B: outside operators 92 %: add --stacks").is_visible()
    assert tab.get_by_text("A: outside").count() == 0
    tab.unroute("**/api/ask", hinted)
    assert page.complaints == []


def test_a_trace_that_is_not_there_is_told_once(page: Page) -> None:
    tab = page.go(f"/compare/{page.traces['before']}/9nothing")
    assert "You have no trace '9nothing'" in tab.get_by_role("alert").inner_text()
    assert tab.get_by_role("heading", level=2).count() == 0
    page.complaints.clear()  # the browser's own lines about refused requests


def test_a_trace_is_compared_from_its_own_page(page: Page) -> None:
    tab = page.go(f"/trace/{page.traces['after']}")
    choice = tab.get_by_role("combobox", name="Compare with")
    choice.focus()
    choice.locator("option").nth(len(page.traces) - 1).wait_for(state="attached")
    choice.select_option(page.traces["before"])
    assert tab.url.endswith(f"#/trace/{page.traces['after']}")
    tab.get_by_role("button", name="Compare", exact=True).click()
    tab.wait_for_url(f"**/#/compare/{page.traces['after']}/{page.traces['before']}")
    assert "▼ faster" in [row[0] for row in cells(page.settled(), "Changes")]


def test_the_slow_step_its_cause_and_the_same_operator_in_another_trace(page: Page) -> None:
    """As a new user would go, in the page alone: from the list, by what each page offers."""
    before, after = page.traces["before"], page.traces["after"]
    tab = page.go("/")
    tab.get_by_role("link", name=before).click()
    tab.wait_for_url(f"**/#/trace/{before}")
    page.settled()
    tab.get_by_role("region", name="Findings").get_by_role("button", name=f"Show step {SLOW}").first.click()
    tab.wait_for_url(f"**?step={SLOW}")
    page.settled()
    way = tab.get_by_role("treegrid", name="Call tree").locator("tr[aria-level='2']")
    assert "train.py(9): save" in way.first.inner_text()
    search = tab.get_by_role("searchbox", name="Search names in the timeline")
    search.fill("aten::mm")
    search.press("Enter")
    tab.get_by_text(f"{STEPS} events found.").wait_for()
    search.press("Enter")
    panel = tab.get_by_role("region", name="Timeline").locator(".event")
    panel.get_by_text("aten::mm").first.wait_for()
    panel.get_by_role("button", name="In another trace").click()
    choice = tab.get_by_role("combobox", name="Compare with")
    choice.locator(f"option[value='{after}']").wait_for(state="attached")
    assert choice.evaluate("(one) => one === document.activeElement")
    choice.select_option(after)
    tab.get_by_role("button", name="Compare", exact=True).click()
    tab.wait_for_url(f"**/#/compare/{before}/{after}?find=aten%3A%3Amm")
    page.settled()
    [row] = cells(tab, "Changes")
    assert (row[0], row[1:3], row[-1]) == ("▲ slower", ["300.0 us", "500.0 us"], "aten::mm")
    assert tab.get_by_role("tree", name="Flame graph").locator(".found").all_inner_texts() == ["aten::mm"]
    # What did not change is found, too, and the choice of rows keeps what is searched for.
    search = tab.get_by_role("searchbox", name="Search the differences")
    search.fill("train.py(9): SAVE")  # as its own page has it: lines of functions are not compared
    assert [row[-1] for row in cells(tab, "Changes")] == ["train.py: save"]
    tab.get_by_role("combobox", name="By").select_option("path")
    tab.wait_for_url("**?by=path&find=*")
    page.settled()
    assert all("train.py: save" in row[-1] for row in cells(tab, "Changes"))
    search.fill("nothing <b>")
    assert "No name in both has nothing <b> in it." in tab.get_by_role("region", name="Differences").inner_text()
    search.fill("")
    assert len(cells(tab, "Changes")) > 1
    assert page.complaints == []
