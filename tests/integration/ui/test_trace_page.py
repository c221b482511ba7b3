"""The traces, and a trace, in a real Chromium: numbers are those of `--json`, names are text, losses are said."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from profclient.cli.flame import layout
from profclient.cli.units import duration

from tests.integration.ui.conftest import FORMULA, HOSTILE, PROFCTL, SLOW, STEPS, Page, cells, event, top_row

pytestmark = pytest.mark.slow
SECTIONS = ["Answer", "Findings", "Steps", "Timeline", "Flame graph", "Call tree", "Top", "SQL"]


def test_the_list_is_that_of_the_command(page: Page) -> None:
    tab = page.go("/")
    listed = {row[1]: row for row in cells(tab, "Traces")}
    for one in page.json("list"):
        row = listed.pop(one["id"])
        assert row[3:5] == [one["title"], f"{one['events']:,}"]
    assert listed == {}
    tab.get_by_role("link", name=page.traces["before"]).click()
    tab.wait_for_url(f"**/#/trace/{page.traces['before']}")
    assert page.complaints == []


def test_an_answer_keeps_its_numbers_and_names_the_trace(page: Page) -> None:
    """Of a line only the folder of a function is left out, not what stands before; a command can be copied."""
    tab = page.go("/")
    said = tab.evaluate(
        """async () => {
          const { answer, findings } = await import("/static/answer.js");
          const name = "/home/ann/train.py(12): fit";
          const summary = answer({
            trace: { events: 1, source: "sdk", rank: null, created_ns: 1 },
            outside_operators: [{ name, wall_ns: 3810000000 }],
            cost: { how: "measured", step_ratio: 1.5, detail: "a step took 3 ms during" },
          });
          const one = {
            id: "slow-steps", sentence: `2 of 9 steps: ${name} explains it`, bound_share: null, symptom_of: [],
            evidence: { steps: [] }, confirm: "profctl top TRACE --step 6",
          };
          const told = findings({ findings: [one] }, "t1", () => {});
          return [...summary, ...told].map((part) => part?.textContent ?? "").join(" ");
        }"""
    )
    for text in (
        "3.81 s in train.py(12): fit, by samples",
        "1.50x as long (measured: a step took 3 ms during)",
        "2 of 9 steps: /home/ann/train.py(12): fit explains it",
        "profctl top t1 --step 6",
    ):
        assert text in said


def test_the_slow_step_and_its_cause_are_found(page: Page) -> None:
    trace = page.traces["before"]
    tab = page.go(f"/trace/{trace}")
    assert [one.inner_text() for one in tab.locator("h2").all()] == SECTIONS
    assert (
        f"{STEPS} steps (from ProfilerStep); 1 took longer than" in tab.get_by_role("region", name="Steps").inner_text()
    )
    whole = page.json("top", trace)
    assert cells(tab, "Top") == [top_row(row) for row in whole]

    chart = tab.get_by_role("slider", name="Steps")
    box = chart.bounding_box()
    chart.click(position={"x": (SLOW + 0.5) * box["width"] / STEPS, "y": box["height"] - 5})
    tab.wait_for_url(f"**/#/trace/{trace}?step={SLOW}")
    page.settled()
    assert chart.get_attribute("aria-valuetext") == "step 7: 9.00 ms, slow"
    step = page.json("top", trace, "--step", str(SLOW))
    assert step != whole
    assert cells(tab, "Top") == [top_row(row) for row in step]
    assert cells(tab, "Top")[0][-1] == "train.py(9): save"
    assert tab.get_by_role("treeitem").filter(has_text="train.py(9): save").is_visible()

    tab.get_by_role("button", name="Whole trace").click()
    tab.wait_for_url(f"**/#/trace/{trace}")
    page.settled()
    assert cells(tab, "Top") == [top_row(row) for row in whole]
    tab.go_back()
    tab.wait_for_url(f"**/#/trace/{trace}?step={SLOW}")
    assert page.complaints == []


def test_steps_are_chosen_with_the_keyboard(page: Page) -> None:
    tab = page.go(f"/trace/{page.traces['before']}")
    chart = tab.get_by_role("slider", name="Steps")
    chart.focus()
    for key in ("End", "ArrowLeft", "PageDown", "ArrowRight", "Enter"):
        tab.keyboard.press(key)
    tab.wait_for_url("**?step=1")
    assert chart.get_attribute("aria-valuenow") == "1"
    tab.keyboard.press("Escape")
    tab.wait_for_url(f"**/#/trace/{page.traces['before']}")


@pytest.mark.parametrize("by", layout.WEIGHTS)
def test_the_flame_graph_is_that_of_the_command(page: Page, by: str) -> None:
    tree = page.json("flame", page.traces["after"])
    for node, device in zip(tree["nodes"], (3, 1, 2), strict=False):
        node["device_total_ns"] = device  # these traces are of a CPU
    page.go("/")
    program = (
        "async ([nodes, by]) => (await import('/static/flame_layout.js')).boxes(nodes, by)"
        ".map(({ depth, left, width, node }) => [depth, left, width, node.name])"
    )
    found = page.tab.evaluate(program, [tree["nodes"], by])
    expected = layout.boxes(tree["nodes"], by)
    assert found == [[box.depth, box.left, box.width, box.node["name"]] for box in expected]


def test_the_flame_graph_zooms_and_searches(page: Page) -> None:
    tab = page.go(f"/trace/{page.traces['after']}")
    graph = tab.get_by_role("tree", name="Flame graph")
    boxes = graph.get_by_role("treeitem")
    first = boxes.first.inner_text()
    many = boxes.count()
    boxes.first.focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowDown", "Enter"):
        tab.keyboard.press(key)
    assert tab.evaluate("() => document.activeElement.textContent") == "aten::mm"
    widths = [round(one.bounding_box()["width"]) for one in boxes.all()]
    assert len(widths) == 3 < many
    assert set(widths) == {round(graph.bounding_box()["width"])}
    tab.keyboard.press("Escape")
    assert (boxes.count(), boxes.first.inner_text()) == (many, first)
    tab.get_by_role("searchbox", name="Search names", exact=True).fill("ATEN::")
    found = tab.get_by_role("region", name="Flame graph").get_by_role("status").inner_text()
    assert found.startswith("1 path found, ")
    assert graph.locator(".found").all_inner_texts() == ["aten::mm"]
    assert page.complaints == []


def rows_of(tab: Any) -> list[tuple[int, str | None, list[str]]]:
    """The rows of the call tree: level, whether it is open, cells; the sign of what can be opened left out."""
    found = tab.get_by_role("treegrid", name="Call tree").locator("tbody tr").all()
    return [
        (
            int(row.get_attribute("aria-level")),
            row.get_attribute("aria-expanded"),
            [cell.inner_text().lstrip("▸▾") for cell in row.locator("td").all()],
        )
        for row in found
    ]


def test_the_call_tree_is_that_of_the_command(page: Page) -> None:
    """The way down that takes most time is open, and everything is reached by keys."""
    trace = page.traces["before"]
    nodes = page.json("tree", trace, "--merged")["nodes"]
    tab = page.go(f"/trace/{trace}")
    at_first = rows_of(tab)
    hottest = max((node for node in nodes if node["depth"] == 0), key=lambda node: node["total_ns"])
    total, own, _, *more = at_first[0][2]
    assert [total, own] == [duration(hottest["total_ns"]), duration(hottest["self_ns"])]
    assert more == [f"{hottest['count']:,}", hottest["name"]]
    assert [(level, opened) for level, opened, _ in at_first[:2]] == [(1, "true"), (2, None)]
    assert all(opened in (None, "false") for _, opened, _ in at_first[2:])
    grid = tab.get_by_role("treegrid", name="Call tree")
    grid.locator("tr[tabindex='0']").focus()
    for key in ("End", "ArrowRight", "Enter", "Enter", "ArrowRight", "ArrowRight", "ArrowLeft", "ArrowLeft"):
        tab.keyboard.press(key)
    tab.keyboard.press("Home")
    tab.keyboard.press("ArrowLeft")  # closed
    assert [level for level, _, _ in rows_of(tab)] == [1] * sum(node["depth"] == 0 for node in nodes)
    while closed := grid.locator("tr[aria-expanded='false']").all():
        closed[0].focus()
        tab.keyboard.press("ArrowRight")
    assert sorted((level, cells[-1]) for level, _, cells in rows_of(tab)) == sorted(
        (node["depth"] + 1, node["name"]) for node in nodes
    )
    assert grid.locator("tr[tabindex='0']").count() == 1
    page.go(f"/trace/{trace}?step={SLOW}")
    assert ["8.00 ms", "8.00 ms", "1", "train.py(9): save"] in [
        [cells[0], cells[1], *cells[3:]] for _, _, cells in rows_of(tab)
    ]
    tab.get_by_role("combobox", name="Of", exact=True).select_option("operators")
    page.settled()
    assert [cells[-1] for _, _, cells in rows_of(tab)] == ["aten::mm"]
    tab.get_by_role("combobox", name="Of", exact=True).select_option("calls")
    page.settled()
    assert page.complaints == []


def test_a_caller_of_many_paths_shows_some(page: Page) -> None:
    """And names that are markup are text."""
    tab = page.go("/")
    counts = tab.evaluate(
        """async () => {
          const { callTree } = await import("/static/call_tree.js");
          const times = { count: 1, total_ns: 9, self_ns: 1, device_total_ns: 0, share: null };
          const node = (depth, name) => ({ depth, name, ...times });
          const below = Array.from({ length: 120 }, (_, at) => node(1, `f${at}<i>`));
          const tree = callTree({ left_out: 3, nodes: [node(0, "main"), ...below] });
          document.body.append(tree);
          const rows = () => tree.querySelectorAll("tbody tr").length;
          const found = [rows()];
          for (const key of ["End", "Enter", "End", "Enter", "Home", "ArrowLeft"]) {
            const row = tree.querySelector("tr[tabindex='0']");
            row.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
            found.push(rows());
          }
          const said = [tree.querySelectorAll("i").length, tree.textContent.includes("3 paths of too little time")];
          tree.remove();
          return [found, said];
        }"""
    )
    assert counts == [[52, 52, 102, 102, 121, 121, 1], [0, True]]


def test_a_step_has_findings_of_its_own(page: Page) -> None:
    trace = page.traces["before"]
    tab = page.go(f"/trace/{trace}")
    region = tab.get_by_role("region", name="Findings")
    whole = region.inner_text()
    page.go(f"/trace/{trace}?step={SLOW}")
    told = page.json("explain", trace, "--step", str(SLOW))
    assert f"Of step {SLOW}" in region.inner_text()
    assert region.inner_text().startswith(whole)
    assert told["message"] in region.inner_text()
    page.go(f"/trace/{trace}")
    assert region.inner_text() == whole


def test_a_part_of_which_little_was_recorded_says_so(page: Page, tmp_path: Path) -> None:
    path = tmp_path / "sparse.json"
    path.write_text(json.dumps({"traceEvents": [event("aten::mm", 0, 100), event("aten::mm", 900, 100)]}))
    done = subprocess.run([*PROFCTL, "import", str(path), "--json"], env=page.environ, capture_output=True, check=True)
    trace = json.loads(done.stdout)["trace"]
    tab = page.go(f"/trace/{trace}?from=0&to=500000")
    graph = tab.get_by_role("region", name="Flame graph")
    graph.get_by_text("80.0 % of this part is in nothing that was recorded").wait_for()
    page.go(f"/trace/{trace}?from=0&to=150000")
    graph.get_by_text("is in nothing that was recorded").wait_for(state="detached")


def test_a_flame_graph_of_some_calls_and_of_one_thread(page: Page) -> None:
    trace = page.traces["after"]
    tab = page.go(f"/trace/{trace}?step=1")
    graph = tab.get_by_role("tree", name="Flame graph")
    tab.get_by_role("combobox", name="Of", exact=True).select_option("operators")
    page.settled()
    want = page.json("flame", trace, "--of", "operators", "--step", "1")["nodes"]
    assert graph.get_by_role("treeitem").all_inner_texts() == [node["name"] for node in want] == ["aten::mm"]
    thread = tab.get_by_role("combobox", name="Thread", exact=True)
    assert thread.locator("option").all_inner_texts()[0] == "all, merged"
    thread.select_option(index=1)
    page.settled()
    assert graph.get_by_role("treeitem").all_inner_texts() == ["aten::mm"]
    tab.get_by_role("combobox", name="Of", exact=True).select_option("modules")
    tab.get_by_text("No call of a module was recorded").wait_for()
    assert page.complaints == []


def test_sql_answers_with_exact_numbers_and_can_be_stopped(page: Page) -> None:
    tab = page.go(f"/trace/{page.traces['before']}")
    box = tab.get_by_role("textbox", name="Question in SQL")
    question = "SELECT name, start_ns + 1 FROM events ORDER BY start_ns LIMIT 3"
    box.fill(question)
    box.press("Control+Enter")
    tab.get_by_role("table", name="Rows").wait_for()
    expected = page.json("sql", page.traces["before"], question)["rows"]
    assert cells(tab, "Rows") == [[name, str(start)] for name, start in expected]
    assert expected[0][1] > 2**53

    box.fill("SELECT nonsense")
    box.press("Control+Enter")
    tab.get_by_role("alert").wait_for()
    assert "nonsense" in tab.get_by_role("alert").inner_text()
    box.fill("SELECT sum(sqrt(a.range)) FROM range(1000000000000) a")
    box.press("Control+Enter")
    tab.get_by_role("button", name="Stop").click()
    tab.get_by_text("Stopped.").wait_for()
    page.complaints.clear()  # of the refused question


def test_rows_are_saved_as_csv_with_exact_numbers_and_no_formula(page: Page, tmp_path: Path) -> None:
    trace = page.traces["hostile"]
    tab = page.go(f"/trace/{trace}")
    region = tab.get_by_role("region", name="SQL")
    question = (
        "SELECT name, start_ns, -self_ns AS less, NULL AS nothing FROM events WHERE length(name) < 99 ORDER BY name"
    )
    region.get_by_role("textbox").fill(question)
    region.get_by_role("textbox").press("Control+Enter")
    with tab.expect_download() as download:
        region.get_by_role("button", name="Save CSV").click()
    assert download.value.suggested_filename == f"profd-sql-{trace}.csv"
    download.value.save_as(tmp_path / "rows.csv")
    with (tmp_path / "rows.csv").open(newline="") as file:
        head, *rows = csv.reader(file)
    told = page.json("sql", trace, question)
    assert head == [column["name"] for column in told["columns"]]
    names = [f"'{name}" if name == FORMULA else name for name, *_ in told["rows"]]
    assert f"'{FORMULA}" in names
    assert rows == [
        [name, str(start), str(less), ""] for name, (_, start, less, _) in zip(names, told["rows"], strict=True)
    ]
    assert page.complaints == []


def test_sql_is_of_the_step_that_is_chosen(page: Page) -> None:
    trace = page.traces["before"]
    tab = page.go(f"/trace/{trace}?step={SLOW}")
    region = tab.get_by_role("region", name="SQL")
    region.get_by_text(f"The tables events and args have what has a part in step {SLOW};").wait_for()
    question = "SELECT name FROM events ORDER BY start_ns"
    region.get_by_role("textbox").fill(question)
    region.get_by_role("textbox").press("Control+Enter")
    tab.get_by_role("table", name="Rows").wait_for()
    names = [name for (name,) in page.json("sql", trace, question, "--step", str(SLOW))["rows"]]
    assert f"ProfilerStep#{SLOW}" in names
    assert f"ProfilerStep#{SLOW - 1}" not in names
    assert cells(tab, "Rows") == [[name] for name in names]
    tab.get_by_role("button", name="Whole trace").click()
    region.get_by_text("The tables events and args").wait_for(state="detached")
    assert page.complaints == []


def test_the_table_is_raw_only_where_the_question_says_so(page: Page) -> None:
    """What a trace of more than ten million events is answered, and what anybody is who asks too much at once."""
    asked: list[bool] = []
    said: list[str] = []

    def refused(route: Any) -> None:
        told = json.loads(route.request.post_data)
        if told["question"] != "top" or told["arguments"].get("raw"):
            asked.extend([True] if told["question"] == "top" else [])
            return route.fallback()
        asked.append(False)
        return route.fulfill(status=429, json={"error": said[-1], "kind": "busy"})

    tab = page.tab
    tab.route("**/api/ask", refused)
    region = tab.get_by_role("region", name="Top")
    for sentence, expected in (
        ("this question needs 20,000,000 events at once, which works up to 10,000,000: ask with --raw", [False, True]),
        ("uid 0 has 8 questions under way, the limit: try again", [False]),
    ):
        said.append(sentence)
        asked.clear()
        page.go("/")
        page.go(f"/trace/{page.traces['before']}")
        assert asked == expected
        assert region.get_by_text("Every event as it was recorded").is_visible() is (len(expected) > 1)
        assert region.get_by_role("alert").count() == 2 - len(expected)
    tab.unroute("**/api/ask", refused)
    page.complaints.clear()  # of the refused questions


HANGING = """async (page) => {
  const real = window.fetch;
  const signals = [];
  window.fetch = (path, { signal, body }) => {
    if (JSON.parse(body).question !== "tiles") signals.push(signal); // those come once the timeline stands still
    return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
  };
  const changed = () => new Promise((resolve) => window.addEventListener("hashchange", resolve, { once: true }));
  for (const place of page) {
    const there = changed();
    location.hash = place;
    await there;
  }
  window.fetch = real;
  return signals.map((signal) => signal.aborted);
}"""


def test_what_nobody_waits_for_any_more_is_given_up(page: Page) -> None:
    """Questions that hang are aborted by the next step, and by another page."""
    trace = page.traces["before"]
    tab = page.go(f"/trace/{trace}")
    tab.get_by_role("combobox", name="Most").select_option("calls")
    page.settled()
    asked = tab.evaluate(HANGING, [f"/trace/{trace}?step=1", f"/trace/{trace}?step=2"])
    assert (
        asked == [True] * 2 + [False] * 2
    )  # the graph and the table of each; findings wait for these, and take longest
    assert tab.evaluate(HANGING, [f"/trace/{trace}?step=3", "/nonsense"]) == [True] * 2
    page.go(f"/trace/{trace}?step={SLOW}")
    tab.get_by_role("combobox", name="Most").select_option("calls")
    tab.get_by_role("button", name="Whole trace").click()
    tab.wait_for_url(f"**/#/trace/{trace}")
    by_calls = page.json("top", trace, "--sort-by", "count")
    assert cells(page.settled(), "Top") == [top_row(row) for row in by_calls]  # the order that was chosen stays


def test_others_traces_are_announced(page: Page) -> None:
    def of_somebody_else(route: Any) -> None:
        answer = route.fetch()
        first, *rest = answer.json()
        route.fulfill(response=answer, json=[{**first, "owner_uid": first["owner_uid"] + 1}, *rest])

    tab = page.tab
    tab.route("**/api/traces", of_somebody_else)
    page.go("/capture/none")
    page.go("/")
    assert tab.get_by_role("note").inner_text().startswith("You read as an admin: 1 trace of other users")
    tab.unroute("**/api/traces")
    page.go("/capture/none")
    page.go("/")
    assert not tab.get_by_role("note").is_visible()


def test_names_are_text(page: Page) -> None:
    """Markup, controls, marks of direction, a megabyte: in tables, titles and the graph."""
    tab = page.go(f"/trace/{page.traces['hostile']}")
    tab.get_by_role("button", name="Ask").click()
    tab.get_by_role("table", name="Rows").wait_for()
    assert tab.locator("main img, main script").count() == 0
    text = tab.locator("main").inner_text()
    assert HOSTILE[0] in text
    assert "bidi \ufffdevil\ufffd" in text
    assert not any(char in text for char in "\u202e\u2066\x00\x1b")
    assert len(text) < 10_000
    attributes = tab.evaluate(
        "() => Math.max(...[...document.querySelectorAll('[title]')].map((one) => one.title.length))"
    )
    assert attributes < 3000
    assert tab.title().startswith("Trace ")
    assert page.complaints == []
    tab.get_by_role("application", name="Timeline").focus()
    seen = []
    for key in ("Enter", *["ArrowDown"] * (len(HOSTILE) - 1)):
        tab.keyboard.press(key)
        page.settled()
        seen.append(tab.locator(".event b").inner_text())
        told = tab.locator("output bdi").inner_text()  # apart: no number beside it is turned around by it
        assert seen[-1].startswith(told.rstrip("…"))
    assert HOSTILE[0] in seen
    assert "bidi \ufffdevil\ufffd" in seen
    assert max(map(len, seen)) <= 301
    assert page.complaints == []


def test_a_trace_that_is_not_there_is_told_once(page: Page) -> None:
    tab = page.go("/trace/9nothing")
    assert len(tab.get_by_role("alert").all()) == 1
    assert "You have no trace '9nothing'" in tab.get_by_role("alert").inner_text()
    tab = page.go(f"/trace/{page.traces['before']}?step=99")
    assert "its steps are 0..11" in tab.get_by_role("region", name="Top").inner_text()
    tab = page.go("/capture/c0123")
    assert "No trace of the capture c0123 is yours to read" in tab.locator("main").inner_text()
    page.go("/nonsense/1")
    assert "leads to no page" in tab.get_by_role("alert").inner_text()
    page.complaints.clear()  # the browser's own lines about refused requests


def test_every_control_has_a_name_in_both_colors(page: Page) -> None:
    for scheme in ("dark", "light"):
        page.tab.emulate_media(color_scheme=scheme)
        for place in (
            "/",
            f"/trace/{page.traces['before']}",
            f"/compare/{page.traces['before']}/{page.traces['after']}",
        ):
            tab = page.go(place)
            nameless = tab.evaluate(
                "() => [...document.querySelectorAll('button, a, input, select, textarea, [tabindex]')]"
                ".filter((one) => one.id !== 'page')"
                ".filter((one) => !(one.textContent.trim() || one.ariaLabel || one.closest('label')))"
                ".map((one) => one.outerHTML)"
            )
            assert nameless == []
            assert tab.evaluate("() => document.documentElement.scrollWidth <= innerWidth")  # nothing sticks out
    assert page.complaints == []


CONTRAST = """(classes) => {
  const light = (color) => {
    const parts = color.match(/[\\d.]+/g).slice(0, 3).map((one) => Number(one) / 255);
    const [red, green, blue] = parts.map((one) => (one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  return Object.fromEntries(classes.map((name) => {
    const one = document.createElement("div");
    one.className = name;
    document.body.append(one);
    const { color, backgroundColor: back } = getComputedStyle(one);
    one.remove();
    const [low, high] = [light(color), light(back)].sort((a, b) => a - b);
    return [name, (high + 0.05) / (low + 0.05)];
  }));
}"""
BOXES = ["function", "operator", "device", "range", "other", "alike", "found"]
BOXES += [f"{way}-{strength}" for way in ("more", "less") for strength in (1, 2, 3)]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_names_in_boxes_can_be_read(page: Page, scheme: str) -> None:
    """By the contrast that WCAG asks of text (AA)."""
    page.go("/")
    page.tab.emulate_media(color_scheme=scheme)
    found = page.tab.evaluate(CONTRAST, [f"box {name}" for name in BOXES])
    assert {name: ratio for name, ratio in found.items() if ratio < 4.5} == {}


def test_a_trace_that_is_deleted_under_the_page(page: Page) -> None:
    tab = page.go(f"/trace/{page.traces['hostile']}")
    page_gone = page.traces["hostile"]
    subprocess.run([*PROFCTL, "rm", page_gone], env=page.environ, capture_output=True, check=True)
    tab.get_by_role("button", name="Ask").click()
    tab.get_by_role("alert").wait_for()
    assert f"no trace '{page_gone}'" in tab.get_by_role("alert").inner_text()
    tab.reload()
    page.settled()
    assert f"no trace '{page_gone}'" in tab.get_by_role("alert").inner_text()
    page.complaints.clear()


def test_a_server_that_has_ended(page: Page) -> None:
    tab = page.go(f"/trace/{page.traces['before']}")
    page.server.send_signal(signal.SIGINT)
    page.server.wait()
    tab.get_by_role("button", name="Ask").click()
    tab.get_by_role("alert").wait_for()
    assert "profctl ui does not answer" in tab.get_by_role("alert").inner_text()
