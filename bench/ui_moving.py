"""The timeline of an open page, moved and zoomed as by hand: frames, how soon it is sharp, what is blank meanwhile."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any, Final

PATIENCE_MS: Final = 900_000  # a trace of 10^8 events on a busy machine
PAUSE_MS: Final = 30  # between two keys, as a held key repeats; it is let go half of that after the last
GUTTER: Final = 190  # pixels, as timeline_paint.js has it

_HELD: Final = """async ({ keys, pause }) => {
  const line = document.querySelector(".timeline");
  const frames = [];
  let [last, on, input] = [0, true, 0];
  const frame = (now) => { if (last) frames.push(now - last); last = now; if (on) requestAnimationFrame(frame); };
  requestAnimationFrame(frame);
  for (const [place, key] of keys.entries()) {
    input = performance.now();
    line.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    await new Promise((done) => setTimeout(done, place < keys.length - 1 ? pause : pause / 2));
  }
  line.dispatchEvent(new KeyboardEvent("keyup", { key: keys.at(-1), bubbles: true })); // between two repeats of it
  while (line.hasAttribute("aria-busy")) await new Promise(requestAnimationFrame);
  on = false;
  return { frames, sharp: performance.now() - input };
}"""

_ONCE: Final = """async ({ key, gutter }) => {
  const line = document.querySelector(".timeline");
  const canvas = line.querySelector("canvas");
  const paint = canvas.getContext("2d");
  const back = getComputedStyle(line).getPropertyValue("--back").trim();
  paint.fillStyle = back;
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(paint.fillStyle.slice(at, at + 2), 16));
  const seen = () => {
    const { data } = paint.getImageData(gutter, 0, canvas.width - gutter, canvas.height);
    const found = [];
    for (let at = 0; at < data.length; at += 4) {
      found.push(data[at] !== red || data[at + 1] !== green || data[at + 2] !== blue);
    }
    return found;
  };
  const next = () => new Promise(requestAnimationFrame);
  line.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  await next();
  await next();
  const first = seen();
  while (line.hasAttribute("aria-busy")) await next();
  await next();
  await next();
  const sharp = seen();
  const drawn = sharp.filter((one) => one).length;
  return drawn ? sharp.filter((one, at) => one && !first[at]).length / drawn : 0;
}"""


def moved(tab: Any) -> dict[str, float]:
    """Frames in ms while keys are held, and ms from the last key until all is sharp."""
    line = tab.locator(".timeline")
    line.scroll_into_view_if_needed()
    _sharp(tab)
    frames: list[float] = []
    sharp: list[float] = []
    for keys in ("w" * 12, "d" * 20, "w" * 12, "a" * 20, "s" * 8, "d" * 20, "w" * 20, "a" * 10, "0"):
        found = tab.evaluate(_HELD, {"keys": list(keys), "pause": PAUSE_MS})
        frames += found["frames"]
        sharp.append(found["sharp"])
    return {
        "frame_p50_ms": statistics.median(frames),
        "frame_p95_ms": p95(frames),
        "sharp_p50_ms": statistics.median(sharp),
        "sharp_worst_ms": max(sharp),
    }


def blank(tab: Any) -> dict[str, float]:
    """The share of what is drawn in the end that is not at first. It takes memory in the tab."""
    tab.evaluate("location.hash = location.hash.split('?')[0]")
    tab.get_by_text("are of the whole trace.").wait_for()
    _sharp(tab)
    found = [tab.evaluate(_ONCE, {"key": key, "gutter": GUTTER}) for key in "wwddwwddaawwddsswwaadd"]
    return {"blank_share_mean": statistics.mean(found), "blank_share_worst": max(found)}


def chosen(tab: Any) -> dict[str, float]:
    """Ms of a search, of an event's arguments, and of one step in the graph and the table; the narrowest window, ns."""
    line, region = tab.locator(".timeline"), tab.get_by_role("region", name="Timeline")
    line.focus()
    tab.keyboard.press("0")
    _sharp(tab)
    search = region.get_by_role("searchbox")
    search.fill("gelu")
    found = {"search_ms": _until(lambda: search.press("Enter"), region.get_by_text("Enter goes to the next."))}
    found["event_ms"] = _until(lambda: search.press("Enter"), region.locator(".event table, .event dl"))
    for _ in range(70):
        line.press("w")
    _sharp(tab)
    found["tiles_at_10_ns_ms"] = tab.evaluate(_HELD, {"keys": ["d"], "pause": PAUSE_MS})["sharp"]
    begun = time.monotonic()
    tab.evaluate("location.hash = location.hash.split('?')[0] + '?step=57'")
    tab.get_by_text("are of step 57.").wait_for()
    for part in ("Flame graph", "Top"):
        settled(tab, part)
        found[f"step_to_{part.lower().replace(' ', '_')}_ms"] = 1000 * (time.monotonic() - begun)
    return found


def settled(tab: Any, part: str) -> None:
    """Wait until a part of the page has its answer."""
    tab.locator(f"section[aria-label='{part}']:not(:has([aria-busy]))").wait_for(timeout=PATIENCE_MS)


def memory_mb(browser: Any) -> float:
    """Resident memory of the largest tab."""
    session = browser.new_browser_cdp_session()
    told = session.send("SystemInfo.getProcessInfo")["processInfo"]
    return max(resident(one["id"]) for one in told if one["type"] == "renderer") / 1e6


def resident(pid: int) -> int:
    """Of one process, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024


def p95(values: list[float]) -> float:
    """The value that one in twenty exceeds."""
    return sorted(values)[int(len(values) * 0.95)]


def _sharp(tab: Any) -> None:
    tab.locator(".timeline:not([aria-busy])").wait_for(timeout=PATIENCE_MS)


def _until(act: Any, there: Any) -> float:
    begun = time.monotonic()
    act()
    there.first.wait_for(timeout=PATIENCE_MS)
    return 1000 * (time.monotonic() - begun)
