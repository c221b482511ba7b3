"""Each chart as a PNG file, which has what the page has."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from tests.integration.ui.conftest import Page

# Of a picture: its size, and how many pixels have each of these colors of the page.
READ = """async ([data, names]) => {
  const bytes = Uint8Array.from(atob(data), (one) => one.charCodeAt(0));
  const image = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
  const canvas = new OffscreenCanvas(image.width, image.height);
  const on = canvas.getContext("2d", { willReadFrequently: true });
  const found = names.map((name) => {
    on.fillStyle = getComputedStyle(document.body).getPropertyValue(`--${name}`);
    on.fillRect(0, 0, 1, 1);
    return on.getImageData(0, 0, 1, 1).data.slice(0, 3).join();
  });
  on.drawImage(image, 0, 0);
  const counts = new Map(found.map((color) => [color, 0]));
  const pixels = on.getImageData(0, 0, image.width, image.height).data;
  for (let at = 0; at < pixels.length; at += 4) {
    const color = pixels.slice(at, at + 3).join();
    if (counts.has(color)) counts.set(color, counts.get(color) + 1);
  }
  return { width: image.width, height: image.height, pixels: found.map((color) => counts.get(color)) };
}"""


def saved(page: Page, within: Any, colors: tuple[str, ...], folder: Path) -> tuple[str, dict[str, Any]]:
    """The name of the file that a chart is saved as, and what is in it."""
    with page.tab.expect_download() as download:
        within.get_by_role("button", name="Save picture").first.click()
    file = folder / "picture.png"
    download.value.save_as(file)
    data = base64.b64encode(file.read_bytes()).decode()
    return download.value.suggested_filename, page.tab.evaluate(READ, [data, list(colors)])


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
