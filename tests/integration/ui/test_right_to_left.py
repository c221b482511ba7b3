"""Names that are written from right to left: nothing beside them changes its order, in sentences and on canvases."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.integration.ui.conftest import PROFCTL, SLOW, Page, event, training

pytestmark = pytest.mark.slow

NAME = "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd"  # two words
THREAD = "\u062e\u064a\u0637"
SENTENCES = "main p, main dd, main output, main h1"
# Of each of these elements with such words, and with something behind them in the same line: whether it stands there.
BEHIND = """(selector) => {
  const found = [];
  for (const one of document.querySelectorAll(selector)) {
    if (!one.checkVisibility() || !/[\\u0590-\\u08ff]/.test(one.textContent)) continue;
    const letters = [];
    const walker = document.createTreeWalker(one, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      for (let at = 0; at < node.length; at++) {
        const range = document.createRange();
        range.setStart(node, at);
        range.setEnd(node, at + 1);
        letters.push({ letter: node.data[at], place: range.getBoundingClientRect() });
      }
    }
    const text = letters.map((letter) => letter.letter).join("");
    for (const words of text.matchAll(/[\\u0590-\\u08ff]+(?: [\\u0590-\\u08ff]+)*/g)) {
      const own = letters.slice(words.index, words.index + words[0].length).map((letter) => letter.place);
      const next = letters.slice(words.index + words[0].length).find(({ letter }) => /[A-Za-z0-9]/.test(letter));
      if (!next || own.some((place) => Math.abs(place.top - next.place.top) > 2)) continue;
      found.push([text, next.place.left >= Math.max(...own.map((place) => place.right)) - 1]);
    }
  }
  return found;
}"""
RECORD = """() => {
  window.inked = new Set();
  const before = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, ...more) {
    window.inked.add(text);
    return before.call(this, text, ...more);
  };
}"""
# Whether a text is drawn as its pieces are, one behind the other, each by itself.
AS_ITS_PIECES = """([text, pieces]) => {
  const picture = (paint) => {
    const canvas = document.createElement("canvas");
    canvas.width = 600;
    const on = canvas.getContext("2d");
    on.font = "13px sans-serif";
    paint(on);
    return on.getImageData(0, 0, 600, 40).data.join();
  };
  const apart = picture((on) => pieces.reduce((x, piece) => {
    on.fillText(piece, x, 20);
    return x + on.measureText(piece).width;
  }, 5));
  return picture((on) => on.fillText(text, 5, 20)) === apart;
}"""


def test_words_from_right_to_left_move_nothing_beside_them(page: Page, tmp_path: Path) -> None:
    events = [{**one, "name": f"{NAME} 12"} if one["name"].endswith("save") else one for one in training(300)]
    events += [
        {"ph": "M", "pid": 1, "tid": 2, "name": "thread_name", "args": {"name": THREAD}},
        event(f"{NAME} 3", SLOW * 1010 + 800, 7000),
    ]
    path = tmp_path / f"{NAME}.json"
    path.write_text(json.dumps({"traceEvents": events}))
    done = subprocess.run([*PROFCTL, "import", str(path), "--json"], env=page.environ, capture_output=True, check=True)
    trace = json.loads(done.stdout)["trace"]
    tab = page.go("/")
    tab.evaluate(RECORD)
    tab = page.go(f"/trace/{trace}?step={SLOW}")
    behind = tab.evaluate(BEHIND, SENTENCES)
    assert any(f"{NAME} 3, called more often" in text for text, _ in behind)
    assert any(f"ms of {THREAD}: operators" in text for text, _ in behind)
    assert [text for text, right in behind if not right] == []
    drawn = [text for text in tab.evaluate("() => [...window.inked]") if NAME in text or THREAD in text]
    assert any(text.startswith(f"\u2068{THREAD}\u2069 2") for text in drawn)
    assert len([text for text in drawn if NAME in text]) > 1
    for text in drawn:
        pieces = [piece for piece in re.split("(\u2068.*?\u2069)", text) if piece]
        assert tab.evaluate(AS_ITS_PIECES, [text, pieces]), text
    assert not tab.evaluate(AS_ITS_PIECES, [f"{NAME} 12", [NAME, " 12"]])
    assert page.complaints == []
