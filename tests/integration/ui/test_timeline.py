"""The timeline of `profctl ui` in a real Chromium: events are chosen, searched and narrowed to as the questions say."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.integration.ui.conftest import PROFCTL, SLOW, STEPS, Page, cells, event, top_row
from tests.support.waiting import until

pytestmark = pytest.mark.slow
GUTTER, RULER, LANE = 190, 38, 18  # pixels of the timeline, as its modules have them
SPAN_US = (STEPS - 1) * 1010 + 8000 + 1000  # of `training`


def timeline(page: Page, trace: str) -> tuple[Any, Any]:
    """The tab and its timeline, in view."""
    tab = page.go(f"/trace/{page.traces[trace]}")
    line = tab.get_by_role("application", name="Timeline")
    line.scroll_into_view_if_needed()
    return tab, line


def place(line: Any, us: float, lane: int) -> dict[str, float]:
    """Where an event is drawn while all of the trace is in view."""
    width = line.evaluate("(one) => one.clientWidth") - GUTTER
    return {"x": GUTTER + us / SPAN_US * width, "y": RULER + (lane + 0.5) * LANE}


def test_an_event_of_the_timeline_is_chosen_by_a_click_and_by_keys(page: Page) -> None:
    tab, line = timeline(page, "before")
    panel = tab.get_by_role("region", name="Timeline").locator(".event")
    line.click(position=place(line, SLOW * 1010 + 5000, 0))
    panel.get_by_text(f"ProfilerStep#{SLOW}").wait_for()
    [row] = page.json("sql", page.traces["before"], f"SELECT start_ns FROM events WHERE name = 'ProfilerStep#{SLOW}'")[
        "rows"
    ]
    assert f"({row[0]} ns)" in panel.inner_text()  # to the ns, which no double holds
    assert "9.00 ms (9000000 ns)" in panel.inner_text()
    tab.keyboard.press("ArrowDown")
    panel.get_by_text("train.py(9): save").wait_for()
    tab.keyboard.press("ArrowLeft")
    panel.get_by_text("train.py(7): forward").wait_for()
    panel.get_by_role("button", name="Its row in the table").click()
    assert tab.locator("tr.found td").last.inner_text() == "train.py(7): forward"
    panel.get_by_role("button", name="In the flame graph").click()
    assert tab.evaluate("document.activeElement.textContent") == "train.py(7): forward"
    panel.get_by_role("button", name=f"ProfilerStep#{SLOW}").click()  # what it is within
    panel.get_by_text("9.00 ms (9000000 ns)").wait_for()
    line.focus()
    tab.keyboard.press("Escape")
    page.settled()
    assert panel.inner_text() == ""
    assert page.complaints == []


def test_keys_go_to_neighbours_while_the_tiles_of_another_window_are_the_newest(page: Page) -> None:
    tab, line = timeline(page, "before")
    panel = tab.get_by_role("region", name="Timeline").locator(".event")
    page.go(f"/trace/{page.traces['before']}?step=1")
    tab.evaluate(NO_TILES)
    try:
        line.focus()
        tab.keyboard.press("0")
        line.click(position=place(line, SLOW * 1010 + 5000, 0))
        panel.get_by_text(f"ProfilerStep#{SLOW}").wait_for()
        tab.keyboard.press("ArrowDown")
        panel.get_by_text("train.py(9): save").wait_for()
    finally:
        tab.reload()  # with the real fetch
    page.settled()
    assert page.complaints == []


def test_a_window_of_the_timeline_narrows_the_other_panels(page: Page) -> None:
    tab, line = timeline(page, "before")
    line.focus()
    for key in "wwwwdda":
        tab.keyboard.press(key)
    tab.get_by_role("button", name="Graph and table of this window").click()
    tab.wait_for_url("**?from=*&to=*")
    page.settled()
    low, high = (int(part.partition("=")[2]) for part in tab.url.partition("?")[2].split("&"))
    assert 0 < low < high < SPAN_US * 1000
    rows = page.json("top", page.traces["before"], "--window", f"{low}ns..{high}ns")
    assert cells(tab, "Top") == [top_row(row) for row in rows]
    tab.get_by_role("button", name="Whole trace").click()
    tab.wait_for_url(f"**/#/trace/{page.traces['before']}")
    assert page.complaints == []


# How much of a row of pixels is drawn on; and what was asked, where tiles never come.
DRAWN = """(one, y) => {
  const canvas = one.querySelector("canvas");
  const ratio = canvas.width / one.clientWidth;
  const [from, wide] = [Math.ceil(191 * ratio), Math.floor((one.clientWidth - 192) * ratio)];
  const { data } = canvas.getContext("2d").getImageData(from, Math.round(y * ratio), wide, 1);
  let drawn = 0;
  for (let at = 0; at < data.length; at += 4) drawn += data[at] < 245 || data[at + 1] < 245 || data[at + 2] < 245;
  return drawn / wide;
}"""
NO_TILES = """() => {
  window.stale = [];
  const real = window.fetch;
  window.fetch = (path, given) => {
    if (!given.body.includes('"tiles"')) return real(path, given);
    window.stale.push(given.signal);
    return new Promise((_, reject) => given.signal.addEventListener("abort", () => reject(given.signal.reason)));
  };
}"""


def test_old_tiles_stay_while_new_ones_come_and_stale_questions_are_given_up(page: Page) -> None:
    tab, line = timeline(page, "before")
    steps = RULER + LANE / 2
    assert line.evaluate(DRAWN, steps) > 0.9
    tab.evaluate(NO_TILES)
    try:
        line.focus()
        for key in "wwww":
            tab.keyboard.press(key)
        until(lambda: tab.evaluate("window.stale.length") > 0, "tiles are asked for")
        before = tab.evaluate("window.stale.length")  # more than one where the keys came slowly
        tab.keyboard.press("d")

        def given_up() -> bool:
            *stale, newest = tab.evaluate("window.stale.map((one) => one.aborted)")
            return len(stale) >= before and all(stale) and not newest

        until(given_up, "the stale questions are given up for a new one")
        assert line.evaluate(DRAWN, steps) > 0.9
        page.go("/")
        assert tab.evaluate("window.stale.at(-1).aborted")
    finally:
        tab.reload()  # with the real fetch
    page.settled()
    assert page.complaints == []


LET_GO = """(line) => {
  const press = (kind) => line.dispatchEvent(new KeyboardEvent(kind, { key: "w", bubbles: true }));
  const asked = [window.stale.length];
  for (const kind of ["keydown", "keydown", "keyup"]) {
    press(kind);
    asked.push(window.stale.length);
  }
  return asked;
}"""


def test_a_key_that_is_let_go_asks_at_once(page: Page) -> None:
    """While it is held nothing is asked for: the next movement comes sooner than an answer."""
    tab, line = timeline(page, "before")
    tab.evaluate(NO_TILES)
    try:
        assert line.evaluate(LET_GO) == [0, 0, 0, 1]
    finally:
        tab.reload()  # with the real fetch
    page.settled()
    assert page.complaints == []


# The answer to the first question for tiles says that it is a sketch, and what it is replaced by waits for `release`.
SKETCHED = """() => {
  const real = window.fetch;
  window.heard = [];
  const held = new Promise((done) => { window.release = done; });
  window.fetch = async (path, given) => {
    const asked = given.body ? JSON.parse(given.body) : {};
    if (asked.question === "tiles_index") {
      window.heard.push("index");
      const gone = new Promise((_, left) => given.signal.addEventListener("abort", () => {
        window.heard.push("given up");
        left(given.signal.reason);
      }));
      await Promise.race([held, gone]);
      return real(path, given);
    }
    if (asked.question === "tiles") window.heard.push(asked.arguments.sketch ? "sketch" : "tiles");
    const answer = await real(path, given);
    if (!asked.arguments?.sketch) return answer;
    return new Response(JSON.stringify({ ...await answer.json(), sketch: { events: 10, of: 40 } }), answer);
  };
}"""


# Answers have larger pixels than were asked for, as of a window with more than an answer's limit.
COARSE = """() => {
  const real = window.fetch;
  window.widths = [];
  window.fetch = async (path, given) => {
    const asked = given.body ? JSON.parse(given.body) : {};
    const answer = await real(path, given);
    if (asked.question !== "tiles") return answer;
    window.widths.push(asked.arguments.to_ns - asked.arguments.from_ns);
    const told = await answer.json();
    return new Response(JSON.stringify({ ...told, pixel_ns: told.pixel_ns * 64 }), answer);
  };
}"""


def test_what_is_coarse_by_the_limit_of_an_answer_is_asked_for_again_when_one_zooms(page: Page) -> None:
    tab, line = timeline(page, "before")
    tab.evaluate(COARSE)
    try:
        line.focus()
        for keys in ("wwww", "wwww"):
            for one in keys:
                tab.keyboard.press(one)
            page.settled()
        first, *_, last = asked = tab.evaluate("window.widths")  # more than two where the keys came slowly
        assert last < first / 4
        tab.keyboard.press("d")  # which needs no more than is there
        page.settled()
        assert tab.evaluate("window.widths") == asked
    finally:
        tab.reload()  # with the real fetch
    page.settled()
    assert page.complaints == []


def test_a_sketch_says_what_it_is_until_the_index_is_there(page: Page) -> None:
    page.go("/")
    tab = page.tab
    tab.evaluate(SKETCHED)
    try:
        tab.evaluate("(hash) => { location.hash = hash; }", f"/trace/{page.traces['before']}")
        region = tab.get_by_role("region", name="Timeline")
        region.get_by_text("A sketch, by 10 of 40 events. Building the index:").wait_for()
        line = tab.get_by_role("application", name="Timeline")
        assert line.get_attribute("aria-label") == "Timeline, a sketch so far"
        assert region.get_by_role("status").filter(has_text="A sketch, by 10 of 40 events.").count() == 1
        assert region.get_by_role("progressbar", name="Building the index").is_visible()
        line.scroll_into_view_if_needed()
        until(lambda: line.evaluate(DRAWN, RULER + LANE / 2) > 0, "the sketch is drawn")
        hatched = line.evaluate(DRAWN, RULER + LANE / 2)
        line.focus()
        for key in "wwd":  # it is as sharp as it can be
            tab.keyboard.press(key)
        tab.keyboard.press("0")
        assert tab.evaluate("window.heard") == ["sketch", "index"]
        tab.evaluate("window.release()")
        page.settled()
        assert tab.evaluate("window.heard") == ["sketch", "index", "tiles"]
        assert region.get_by_text("A sketch").count() == 0
        assert line.get_attribute("aria-label") == "Timeline"
        assert line.evaluate("(one) => document.activeElement === one")
        assert hatched < 0.8 < 0.9 < line.evaluate(DRAWN, RULER + LANE / 2)
    finally:
        tab.reload()  # with the real fetch
    page.settled()
    assert page.complaints == []


def test_the_index_of_a_page_that_is_left_is_given_up(page: Page) -> None:
    page.go("/")
    tab = page.tab
    tab.evaluate(SKETCHED)
    try:
        tab.evaluate("(hash) => { location.hash = hash; }", f"/trace/{page.traces['before']}")
        tab.get_by_text("A sketch, by 10 of 40 events.").wait_for()
        page.go("/")
        assert tab.evaluate("window.heard") == ["sketch", "index", "given up"]
    finally:
        tab.reload()  # with the real fetch
    page.settled()
    assert page.complaints == []


def test_names_are_searched_in_the_timeline(page: Page) -> None:
    tab, _ = timeline(page, "before")
    search = tab.get_by_role("searchbox", name="Search names in the timeline")
    region = tab.get_by_role("region", name="Timeline")
    search.fill("SAVE")
    search.press("Enter")
    region.get_by_text("1 event found.").wait_for()
    search.press("Enter")
    region.locator(".event").get_by_text("train.py(9): save").wait_for()
    search.fill("it's")
    search.press("Enter")
    region.get_by_text("0 events found.").wait_for()
    assert page.complaints == []


def test_the_strip_of_all_of_the_trace_leads_to_a_moment(page: Page) -> None:
    tab, line = timeline(page, "before")
    strip = tab.locator("canvas.overview")
    box = strip.bounding_box()
    line.focus()
    for _ in range(6):
        tab.keyboard.press("w")
    middle = GUTTER + (SLOW * 1010 + 5000) / SPAN_US * (box["width"] - GUTTER)
    strip.click(position={"x": middle, "y": 9})
    page.settled()
    line.focus()
    tab.keyboard.press("Enter")  # the longest in view
    tab.locator(".event").get_by_text(f"ProfilerStep#{SLOW}").first.wait_for()
    assert page.complaints == []


def test_what_was_found_is_chosen_even_where_it_was_too_short_to_be_drawn(page: Page, tmp_path: Path) -> None:
    events = [event("whole", 0, 1_000_000), *(event(f"op{number}", 100 + 0.15 * number, 0.1) for number in range(2000))]
    path = tmp_path / "short.json"
    path.write_text(json.dumps({"traceEvents": events}))
    done = subprocess.run([*PROFCTL, "import", str(path), "--json"], env=page.environ, capture_output=True, check=True)
    tab = page.go(f"/trace/{json.loads(done.stdout)['trace']}")
    search = tab.get_by_role("searchbox", name="Search names in the timeline")
    search.fill("op1500")
    search.press("Enter")
    tab.get_by_text("1 event found").wait_for()
    search.press("Enter")
    chosen = tab.locator(".event b")
    chosen.get_by_text("op1500", exact=True).wait_for()
    page.settled()
    tab.get_by_role("application", name="Timeline").focus()
    tab.keyboard.press("ArrowRight")
    chosen.get_by_text("op1501", exact=True).wait_for()
    assert page.complaints == []


def test_windows_of_the_timeline_stay_within_the_trace(page: Page) -> None:
    page.go("/")
    program = (
        "async (span) => { const m = await import('/static/timeline_layout.js'); let view = { from: 0, to: span };"
        "for (let n = 0; n < 200; n++) view = m.zoomed(view, 0.5, 12345, span); const near = view;"
        "for (let n = 0; n < 200; n++) view = m.zoomed(view, 1.7, 12345, span);"
        "return [near, view, m.moved(near, -1e18, span), m.moved(near, 1e18, span), m.within({ from: 5, to: 5 }, 1)]; }"
    )
    near, far, first, last, tiny = page.tab.evaluate(program, 10**15)
    assert near["to"] - near["from"] == 10
    assert near["from"] <= 12345 <= near["to"]
    assert far == {"from": 0, "to": 10**15}
    assert first == {"from": 0, "to": 10}
    assert last == {"from": 10**15 - 10, "to": 10**15}
    assert tiny == {"from": 0, "to": 10}


def test_a_step_is_asked_for_by_its_times(page: Page) -> None:
    """To find it by its number a whole trace would be read: 10^8 events."""
    trace = page.traces["before"]
    tab, _ = timeline(page, "before")
    with tab.expect_request(lambda request: '"merged_tree"' in (request.post_data or "")) as asked:
        page.go(f"/trace/{trace}?step={SLOW}")
    steps = page.json("steps", trace)["steps"]
    begin, [step] = steps[0]["start_ns"], [one for one in steps if one["number"] == SLOW]
    given = asked.value.post_data_json["arguments"]
    assert (given["from_ns"], given["to_ns"] - given["from_ns"]) == (step["start_ns"] - begin, step["duration_ns"])
    page.settled()
    assert page.complaints == []


def test_an_event_whose_end_was_not_seen_is_as_long_as_it_is_drawn(page: Page, tmp_path: Path) -> None:
    """GIVEN a call that goes on behind the trace WHEN one within it leads to it THEN all of it stays in view."""
    path = tmp_path / "open.json"
    events = [{**event("open", 0, 0), "ph": "B"}, event("inner", 100, 50), event("last", 900, 100)]
    path.write_text(json.dumps({"traceEvents": events}))
    trace = page.json("import", str(path))["trace"]
    tab = page.go(f"/trace/{trace}")
    region = tab.get_by_role("region", name="Timeline")
    search = region.get_by_role("searchbox")
    search.fill("inner")
    search.press("Enter")
    region.get_by_text("1 event found.").wait_for()
    search.press("Enter")
    page.settled()
    region.locator(".event").get_by_role("button", name="open").click()
    page.settled()
    assert region.locator("output").inner_text() == "open, 1.00 ms, 0 ns after the first event"
    assert "its end was not seen" in region.locator(".event").inner_text()
    assert page.complaints == []
