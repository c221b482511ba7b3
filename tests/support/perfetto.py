"""Perfetto's own UI, as the wheel ships it: asked by its own queries, in a browser."""

from __future__ import annotations

from typing import Any

import pytest
from profclient.ui.perfetto import INSTALL, installed

from tests.support.waiting import until

needs_perfetto = pytest.mark.skipif(installed() is None, reason=f"Perfetto is not installed ({INSTALL})")

_ASKED = """async (sql) => {
  const rows = [], answer = await app.trace.engine.query(sql), names = answer.columns();
  for (const row = answer.iter({}); row.valid(); row.next()) rows.push(names.map((one) => String(row.get(one))));
  return rows;
}"""
_SEEN = """() => {
  const { start, duration } = app.trace.timeline.visibleWindow;
  return [String(start.integral), Math.round(duration)];
}"""


class Perfetto:
    """The frame of a tab in which it is, when it has read its trace."""

    def __init__(self, tab: Any) -> None:
        until(lambda: self._found(tab) is not None, "there is a frame of Perfetto")
        self.frame = self._found(tab)
        until(
            lambda: self.frame.evaluate("Boolean(window.app?.trace && !app.isLoadingTrace)"), "Perfetto has the trace"
        )

    @staticmethod
    def _found(tab: Any) -> Any:
        tab.evaluate("0")  # Playwright hears of frames while it is asked
        return next((frame for frame in tab.frames if "/perfetto.html" in frame.url), None)

    def rows(self, sql: str) -> list[list[str]]:
        """Its own answer, each cell as text."""
        return list(self.frame.evaluate(_ASKED, sql))

    def seen(self) -> tuple[int, int]:
        """The begin of what is in view, and its length, in ns as the trace has them."""
        begin, length = self.frame.evaluate(_SEEN)
        return int(begin), length
