"""The page of a capture of several ranks in a real Chromium: numbers are those of `profctl`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from profclient.cli.units import duration

from tests.integration.ui.conftest import MARKUP, PROFCTL, Page, cells
from tests.integration.ui.test_pictures import saved
from tests.support.simulated_job import Plan, files

pytestmark = pytest.mark.slow
COUNTS_AHEAD = 100  # steps of rank 2, as its program numbers them
LATE = 2


@pytest.fixture(scope="module")
def capture(page: Page, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Three ranks; the last one is late in each tenth step, numbers its steps otherwise, and its host is markup."""
    paths = files(tmp_path_factory.mktemp("ranks"), Plan(steps=120, late={LATE: 3_000_000}, every=10))
    recorded = json.loads(paths[LATE].read_text())
    for event in recorded["traceEvents"]:
        name, _, number = event["name"].partition("#")
        if name == "ProfilerStep":
            event["name"] = f"{name}#{int(number) + COUNTS_AHEAD}"
        if name == "aten::sort":
            event["name"] = MARKUP
    paths[LATE].write_text(json.dumps(recorded))
    words = [*PROFCTL, "import", "--together", *map(str, paths), "--json"]
    done = subprocess.run(words, env=page.environ, capture_output=True, check=True)
    return str(json.loads(done.stdout)[0]["capture"])


def test_ranks_are_those_of_the_command(page: Page, capture: str) -> None:
    tab = page.go(f"/capture/{capture}")
    tab.get_by_role("link", name="Its ranks").click()
    tab.wait_for_url(f"**/#/ranks/{capture}")
    page.settled()
    told = page.json("ranks", capture)
    keys = ("step_ns", "compute_ns", "exposed_ns", "waiting_ns")
    assert [row[3:7] for row in cells(tab, "Ranks")] == [[duration(row[key]) for key in keys] for row in told["ranks"]]
    (late,) = told["stragglers"]
    region = tab.get_by_role("region", name="Late ranks").inner_text()
    assert late["sentence"] in region
    assert MARKUP in region
    assert "compared with 2 others." in region
    assert told["clocks"]["message"] in region
    assert tab.locator("main img").count() == 0
    assert page.complaints == []


def test_collectives_and_the_critical_path_are_those_of_the_commands(page: Page, capture: str) -> None:
    tab = page.go(f"/ranks/{capture}")
    (row,) = page.json("comm", capture)["collectives"]
    (shown,) = cells(tab, "Collectives")
    times = [duration(row[key]) for key in ("total_ns", "transfer_ns", "waiting_ns")]
    assert [shown[0], shown[2], *shown[5:8]] == [row["op"], str(row["count"]), *times]
    assert shown[8].startswith(f"rank {row['last'][0]['rank']}: {row['last'][0]['times']} of ")
    told = page.json("critical", capture)
    on_path = [row for key in ("ranks", "collectives") for row in told[key]]
    assert [row[1] for row in cells(tab, "Critical path")] == [duration(row["path_ns"]) for row in on_path]
    path = tab.get_by_role("region", name="Critical path", exact=True).inner_text()
    assert all(sentence in path for sentence in told["sentences"])
    assert told["sentences"]


def test_a_cell_leads_to_that_step_as_its_own_trace_calls_it(page: Page, capture: str) -> None:
    tab = page.go(f"/ranks/{capture}")
    told = page.json("ranks", capture)
    row = told["heat"]["rows"][LATE]
    place = max(range(len(row["late"])), key=lambda at: row["late"][at] or 0)
    number = told["heat"]["steps"][place] + COUNTS_AHEAD
    heat = tab.get_by_role("application", name="Heat map")
    box = heat.bounding_box()
    at = {"x": (place + 0.5) * box["width"] / len(row["late"]), "y": (LATE + 0.5) * box["height"] / 3}
    heat.hover(position=at)
    said = tab.get_by_role("region", name="Heat map", exact=True).locator("output")
    share = f"{row['late'][place]:.1%}".replace("%", " %")
    assert said.inner_text() == f"rank {LATE}, step {number}: {share} of a step later than the rank in the middle"
    heat.click(position=at)
    tab.wait_for_url(f"**/#/trace/{row['trace']}?step={number}")
    page.settled()
    assert MARKUP in [one[-1] for one in cells(tab, "Top")]
    tab.go_back()
    tab.wait_for_url(f"**/#/ranks/{capture}")
    page.settled()
    (late,) = tab.get_by_role("region", name="Late ranks").get_by_role("link", name=f"step {number}", exact=True).all()
    assert late.get_attribute("href") == f"#/trace/{row['trace']}?step={number}"
    assert page.complaints == []


def test_the_map_by_keys_and_as_a_table(page: Page, capture: str) -> None:
    tab = page.go(f"/ranks/{capture}")
    heat = page.json("ranks", capture)["heat"]
    said = tab.get_by_role("region", name="Heat map", exact=True).locator("output")
    tab.get_by_role("application", name="Heat map").focus()
    for key in ("End", "Home", "ArrowRight", "ArrowDown"):
        tab.keyboard.press(key)
    assert said.inner_text().startswith(f"rank 1, step {heat['steps'][1]}: ")
    tab.keyboard.press("Enter")
    tab.wait_for_url(f"**/#/trace/{heat['rows'][1]['trace']}?step={heat['steps'][1]}")
    tab = page.go(f"/ranks/{capture}")
    tab.get_by_text("of a step or more, as a table").click()
    late = sorted((one for row in heat["rows"] for one in row["late"] if one is not None and one >= 0.02), reverse=True)
    assert [row[2] for row in cells(tab, "Late cells")] == [f"{one:.1%}".replace("%", " %") for one in late]
    assert cells(tab, "Late cells")[0][0] == f"rank {LATE}"


FOLDED = """async () => {
  const { stepsOf, worstRows } = await import('/static/heat.js');
  const heat = { steps: [1, 4, 9], steps_together: 3 };
  const row = (rank, late) => ({ rank, trace: "t", late, counts_ahead: 100 });
  const many = Array.from({ length: 70 }, (_, rank) => row(rank, [rank === 5 ? -1 : rank % 7 ? 0.1 : null, null]));
  return [[0, 1, 2].map((column) => stepsOf(heat, row(0, []), column)), worstRows(many).map((one) => one.rank)];
}"""


def test_columns_of_several_steps_and_more_ranks_than_are_drawn(page: Page) -> None:
    page.go("/")
    steps, ranks = page.tab.evaluate(FOLDED)
    assert steps == [{"first": 101, "last": 103}, {"first": 104, "last": 106}, {"first": 109, "last": 111}]
    assert len(ranks) == 64
    assert ranks == sorted(ranks)
    assert {rank for rank in range(70) if rank % 7 and rank != 5} <= set(ranks)


def test_several_steps_narrow_a_trace_together(page: Page) -> None:
    trace = page.traces["before"]
    tab = page.go(f"/trace/{trace}?step=6..8")
    assert "are of steps 6 to 8" in tab.locator("main").inner_text()
    first = page.json("top", trace, "--step", "6..8")[0]
    assert cells(tab, "Top")[0][:2] == [duration(first["self_cpu_time_total_ns"]), duration(first["cpu_time_total_ns"])]


def test_too_little_to_compare_is_said(page: Page, tmp_path: Path) -> None:
    """GIVEN one rank, and an id that is nobody's WHEN looked at THEN each is a sentence."""
    (path,) = files(tmp_path, Plan(ranks=1))
    words = [*PROFCTL, "import", "--together", str(path), "--json"]
    done = subprocess.run(words, env=page.environ, capture_output=True, check=True)
    alone = json.loads(done.stdout)["capture"]
    tab = page.go(f"/ranks/{alone}")
    assert "not enough data" in tab.get_by_role("region", name="Late ranks").inner_text()
    assert page.complaints == []
    tab = page.go("/ranks/c0123")
    assert len(tab.get_by_role("alert").all()) == 1
    assert "c0123" in tab.get_by_role("alert").inner_text()
    page.complaints.clear()  # the browser's own line about the refused request


@pytest.mark.parametrize("wide", [390, 1280])
def test_nothing_sticks_out_and_every_control_has_a_name(page: Page, capture: str, wide: int) -> None:
    tab = page.tab
    tab.set_viewport_size({"width": wide, "height": 900})
    page.go(f"/ranks/{capture}")
    assert tab.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    nameless: list[Any] = tab.evaluate(
        "() => [...document.querySelectorAll('button, a, [tabindex]')].filter((one) => one.id !== 'page')"
        ".filter((one) => !(one.textContent.trim() || one.ariaLabel)).map((one) => one.outerHTML)"
    )
    assert nameless == []


def test_the_map_is_saved_with_its_ranks_and_colors(page: Page, capture: str, tmp_path: Path) -> None:
    tab = page.go(f"/ranks/{capture}")
    area = tab.get_by_role("application", name="Heat map").bounding_box()
    name, picture = saved(page, tab, ("back", "text", "heat-0", "heat-4"), tmp_path)
    assert name == f"profd-heat-map-{capture}.png"
    assert picture["width"] > area["width"], "names of ranks stand beside it"
    assert min(picture["pixels"]) > 20
