"""Every page by keys alone, on a small screen, at twice the size, in both colors, with names that are hostile."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.ui.conftest import MARKUP, PROFCTL, SLOW, STEPS, Page, cells
from tests.support.simulated_job import Plan, files

pytestmark = pytest.mark.slow

RTL = "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd " * 20 + "\u202e" + "z" * 3000
CONTROLS = "a[href], button:enabled, input:enabled, select:enabled, textarea:enabled, summary, [tabindex='0']"
# What Tab leads to, by number in the order of the page: the ones that are seen and can be pressed.
NUMBERED = """(controls) => {
  const all = [...document.querySelectorAll(`main :is(${controls})`)]
    .filter((one) => one.tabIndex >= 0 && one.checkVisibility());
  all.forEach((one, at) => { one.dataset.at = at; });
  return all.length;
}"""
FOCUSED = """() => {
  const one = document.activeElement;
  const { top, bottom, left, right } = one.getBoundingClientRect();
  const style = getComputedStyle(one);
  const named = one.ariaLabel || one.labels?.[0]?.textContent || one.textContent.trim() || one.placeholder;
  return {
    at: Number(one.dataset.at ?? -1), what: one.outerHTML.slice(0, 200), named: Boolean(named),
    ring: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0,
    seen: bottom > 0 && top < innerHeight && right > 0 && left < innerWidth && (top >= -1 || bottom > innerHeight),
  };
}"""
HAS_FOCUS = "(one) => one === document.activeElement"
# What sticks out of the window, is cut without a title that has all of it, or lies upon something else.
MISPLACED = """() => {
  const found = [];
  const words = (one) => `${one.tagName} ${one.className} ${one.textContent.slice(0, 40)}`;
  const { scrollWidth } = document.documentElement;
  if (scrollWidth > innerWidth) found.push(`the page is ${scrollWidth} wide`);
  const { offsetHeight } = document.querySelector("header");
  if (offsetHeight > 120) found.push(`the header is ${offsetHeight} high`);
  for (const one of document.querySelectorAll("main *, header *")) {
    if (!one.checkVisibility() || one.closest(".flame, canvas")) continue;
    const { overflowX } = getComputedStyle(one);
    const cut = one.scrollWidth > one.clientWidth + 1 && one.textContent.trim();
    if (cut && overflowX === "hidden" && !one.title && !one.matches(".timeline")) found.push(`cut: ${words(one)}`);
    if (cut && one.matches("button, select")) found.push(`cut: ${words(one)}`);
  }
  const apart = "button, a, input, select, textarea, output, dt, dd, p, h1, h2, h3";
  const all = [...document.querySelectorAll(`main :is(${apart}), header :is(a, p)`)]
    .filter((one) => one.checkVisibility() && !one.closest(".flame, .scroll, .narrowed"));
  all.forEach((one, at) => all.slice(at + 1).forEach((other) => {
    if (one.contains(other) || other.contains(one)) return;
    for (const a of one.getClientRects()) for (const b of other.getClientRects()) {
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (wide > 2 && high > 3) found.push(`upon each other: ${words(one)} and ${words(other)}`);
    }
  }));
  return [...new Set(found)];
}"""
# Texts with too little contrast to what is behind them, by WCAG (AA); and what canvases write upon what they paint.
PALE = """() => {
  const on = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const over = (below, color) => {
    on.globalCompositeOperation = "copy";
    on.fillStyle = below;
    on.fillRect(0, 0, 1, 1);
    on.globalCompositeOperation = "source-over";
    on.fillStyle = color;
    on.fillRect(0, 0, 1, 1);
    return `rgb(${on.getImageData(0, 0, 1, 1).data.slice(0, 3).join(" ")})`;
  };
  const light = (color) => {
    const [red, green, blue] = color.match(/\\d+/g).map((one) => Number(one) / 255)
      .map((one) => (one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const ratio = (one, other) => {
    const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const root = getComputedStyle(document.body);
  const named = (name) => over("white", root.getPropertyValue(`--${name}`));
  const found = {};
  for (const pair of ["text bar", "back slow", "text raised", "dim raised", "text back", "dim back"]) {
    const contrast = ratio(...pair.split(" ").map(named));
    if (contrast < 4.5) found[pair] = contrast;
  }
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const one = texts.currentNode.parentElement;
    if (!texts.currentNode.textContent.trim() || !one.checkVisibility()) continue;
    const around = [];
    for (let each = one; each; each = each.parentElement) around.unshift(getComputedStyle(each));
    const back = around.reduce((below, { backgroundColor }) => over(below, backgroundColor), named("back"));
    const opacity = around.reduce((all, each) => all * Number(each.opacity), 1);
    const contrast = opacity < 1 ? 0 : ratio(over(back, getComputedStyle(one).color), back);
    if (contrast < 4.5) found[`${one.tagName} ${one.className}`] = contrast;
  }
  for (const one of document.querySelectorAll("[placeholder]")) {
    const back = over("white", getComputedStyle(one).backgroundColor);
    const contrast = ratio(over(back, getComputedStyle(one, "::placeholder").color), back);
    if (contrast < 4.5) found[one.outerHTML] = contrast;
  }
  return found;
}"""


@pytest.fixture(scope="module")
def pages(page: Page, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """All that there is to look at without a job that runs; a rank's operator, and names of threads, are hostile."""
    before, after, hostile = (page.traces[name] for name in ("before", "after", "hostile"))
    paths = files(tmp_path_factory.mktemp("ranks"), Plan(late={1: 3_000_000}, every=3))
    recorded = json.loads(paths[1].read_text())
    for event in recorded["traceEvents"]:
        if event["name"] == "aten::sort":
            event["name"] = RTL
    named = {"ph": "M", "pid": 1, "name": "thread_name"}
    recorded["traceEvents"] += [
        {**named, "tid": 1, "args": {"name": RTL}},
        {**named, "tid": 7, "args": {"name": MARKUP + "y" * 1_000_000}},
        {**recorded["traceEvents"][0], "tid": 7, "cat": "cpu_op", "name": MARKUP},
    ]
    paths[1].write_text(json.dumps(recorded))
    words = [*PROFCTL, "import", "--together", *map(str, paths), "--json"]
    done = subprocess.run(words, env=page.environ, capture_output=True, check=True)
    told = json.loads(done.stdout)
    capture, rank = told[0]["capture"], told[1]["trace"]
    compared = f"/compare/{before}/{after}"
    return [
        "/",
        f"/trace/{before}",
        f"/trace/{hostile}",
        f"/trace/{rank}?step=2",
        compared,
        f"/ranks/{capture}",
        f"/capture/{capture}",
        "/captures",
        "/now",
    ]


@pytest.fixture
def tab(page: Page) -> Iterator[Any]:
    """The tab as others left it, and as they want to find it."""
    yield page.tab
    page.tab.set_viewport_size({"width": 1280, "height": 900})
    page.tab.emulate_media(color_scheme="light")


def go(page: Page, place: str) -> Any:
    """To a page, until everything in it is there. The page Now is never done."""
    tab = page.go(place)
    if place == "/now":
        tab.get_by_role("region", name="Ended last").get_by_text("No capture yet.").wait_for()
    return tab


def test_tab_leads_to_every_control_in_the_order_of_the_page_and_out_again(page: Page, pages: list[str]) -> None:
    for place in pages:
        tab = go(page, place)
        count = tab.evaluate(NUMBERED, CONTROLS)
        tab.locator("#page").focus()
        for at in range(count):
            tab.keyboard.press("Tab")
            told = tab.evaluate(FOCUSED)
            assert told["at"] == at, (place, told)
            assert told["named"], (place, told)
            assert told["ring"], (place, told)
            assert told["seen"], (place, told)
        tab.keyboard.press("Tab")
        assert tab.evaluate(FOCUSED)["at"] == -1, place
    assert page.complaints == []


def test_the_focus_goes_where_what_was_pressed_has_led(page: Page) -> None:
    """GIVEN controls that go away when they are pressed WHEN pressed by keys THEN the focus is at what came of it."""
    tab = page.go(f"/trace/{page.traces['before']}")
    tab.get_by_role("link", name="Skip to the page").focus()
    tab.keyboard.press("Enter")
    assert tab.locator("#page").evaluate(HAS_FOCUS)
    assert tab.get_by_role("heading", level=1).inner_text() == "before.json"
    steps = tab.get_by_role("slider", name="Steps")
    steps.focus()
    for key in ("Home", *["ArrowRight"] * SLOW, "Space"):
        tab.keyboard.press(key)
    tab.wait_for_url(f"**?step={SLOW}")
    page.settled()
    assert steps.evaluate(HAS_FOCUS)
    narrowed = tab.locator(".narrowed")
    assert narrowed.evaluate("(one) => one.getBoundingClientRect().bottom <= innerHeight"), (
        "it is in view wherever one is"
    )
    narrowed.get_by_role("button", name="Whole trace").focus()
    tab.keyboard.press("Enter")
    page.settled()
    assert narrowed.evaluate(HAS_FOCUS)
    # The timeline, an event, one that it is within, and back.
    line = tab.get_by_role("application", name="Timeline")
    search = tab.get_by_role("searchbox", name="Search names in the timeline")
    search.fill("aten::mm")
    search.press("Enter")
    tab.get_by_text(f"{STEPS} events found.").wait_for()
    search.press("Enter")
    page.settled()
    panel = tab.locator(".event")
    panel.get_by_role("button", name="train.py(7): forward").focus()
    tab.keyboard.press("Enter")
    page.settled()
    assert panel.evaluate(HAS_FOCUS)
    assert panel.locator("b").inner_text() == "train.py(7): forward"
    panel.get_by_role("button", name="Its row in the table").focus()
    tab.keyboard.press("Enter")
    assert tab.get_by_role("table", name="Top").get_by_role("button", name="train.py(7): forward").evaluate(HAS_FOCUS)
    panel.get_by_role("button").first.focus()
    tab.keyboard.press("Escape")
    assert line.evaluate(HAS_FOCUS)
    assert panel.inner_text() == ""
    # A box that Space zooms into, and the button that goes away with it.
    graph = tab.get_by_role("tree", name="Flame graph")
    graph.locator("[tabindex='0']").focus()
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("Space")
    whole = tab.get_by_role("button", name="Whole graph")
    assert whole.is_enabled()
    whole.focus()
    tab.keyboard.press("Enter")
    assert graph.locator("[tabindex='0']").evaluate(HAS_FOCUS)
    assert page.complaints == []


@pytest.mark.parametrize(
    ("part", "keys", "places"),
    [
        ("Flame graph", ["ArrowDown", "ArrowDown", "Space"], ["Its row in the table"]),
        ("Call tree", ["ArrowDown"], ["In the flame graph", "Its row in the table"]),
        ("Top", ["End", "ArrowUp", "Enter"], ["In the flame graph"]),
    ],
)
def test_a_name_of_each_part_leads_to_another_trace(page: Page, part: str, keys: list[str], places: list[str]) -> None:
    """GIVEN a box, a path, a row that keys chose WHEN another trace is asked for THEN its name is found in both."""
    before, after = page.traces["before"], page.traces["after"]
    page.go("/")
    tab = page.go(f"/trace/{before}?step=3")
    region = tab.get_by_role("region", name=part, exact=True)
    region.locator(".box[tabindex='0'], tbody [tabindex='0']").focus()
    for key in keys:
        tab.keyboard.press(key)
    chosen = region.locator(".chosen")
    name = chosen.locator("b").inner_text()
    assert name in ("train.py(7): forward", "aten::mm")
    assert chosen.get_by_role("button").all_inner_texts() == [*places, "In another trace"]
    chosen.get_by_role("button", name="In another trace").press("Enter")
    choice = tab.get_by_role("combobox", name="Compare with")
    choice.locator(f"option[value='{after}']").wait_for(state="attached")
    assert choice.evaluate(HAS_FOCUS)
    choice.select_option(after)
    tab.keyboard.press("Tab")
    tab.keyboard.press("Enter")
    tab.wait_for_url(f"**/#/compare/{before}/{after}?find=*")
    page.settled()
    assert tab.get_by_role("searchbox", name="Search the differences").input_value() == name
    assert len(cells(tab, "Changes")) == 1
    assert page.complaints == []


def test_two_traces_are_compared_by_keys(page: Page) -> None:
    tab = page.go("/")
    for name in ("after", "before"):
        tab.get_by_role("checkbox", name=f"Compare {page.traces[name]}").focus()
        tab.keyboard.press("Space")
    tab.keyboard.press("Enter")
    tab.wait_for_url(f"**/#/compare/{page.traces['before']}/{page.traces['after']}")
    assert page.complaints == []


def test_how_to_know_is_offered_here_before_the_command(page: Page) -> None:
    trace = page.traces["before"]
    tab = page.go(f"/trace/{trace}")
    item = tab.get_by_role("region", name="Findings").locator("li", has_text="slow-steps")
    words = item.locator("p", has_text="To know").inner_text()
    assert words.index(f"Top of step {SLOW}") < words.index(f"profctl top {trace} --step {SLOW}")
    item.get_by_role("button", name=f"Top of step {SLOW}").press("Enter")
    tab.wait_for_url(f"**?step={SLOW}")
    page.settled()
    heading = tab.get_by_role("heading", name="Top")
    assert heading.evaluate(HAS_FOCUS)
    assert heading.evaluate("(one) => one.getBoundingClientRect().top < innerHeight / 2"), "it is scrolled to"
    assert cells(tab, "Top")[0][-1] == "train.py(9): save"
    here = tab.get_by_role("region", name="Findings")
    here.get_by_role("button", name="Call tree").press("Enter")
    assert tab.get_by_role("heading", name="Call tree").evaluate(HAS_FOCUS)
    assert page.complaints == []


@pytest.mark.parametrize(("wide", "high"), [(640, 450), (320, 568)], ids=["at 200 %", "320 pixels"])
def test_nothing_is_cut_or_lies_upon_something_else(
    page: Page, pages: list[str], tab: Any, wide: int, high: int
) -> None:
    tab.set_viewport_size({"width": wide, "height": high})
    found = {}
    for place in pages:
        go(page, place)
        found[place] = tab.evaluate(MISPLACED)
    assert {place: wrong for place, wrong in found.items() if wrong} == {}
    assert tab.locator("main img, main script").count() == 0
    assert page.complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read(page: Page, pages: list[str], tab: Any, scheme: str) -> None:
    tab.emulate_media(color_scheme=scheme)
    found = {}
    for place in pages:
        go(page, place)
        found[place] = tab.evaluate(PALE)
    assert {place: pale for place, pale in found.items() if pale} == {}
