"""What happens on the host, as lines of JSON: rows as commands print them, less what a live page has no use for."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final

from profclient import as_json

from profd import limits
from profd.capture.host_watch import HostWatch, Moment, Rows
from profd.capture.manager import CaptureManager
from profd.capture.planner import Sighting
from profd.capture.records import CaptureRecord
from profd.rpc import translate
from profd.rpc.calls import current_task
from profd.trust.caller import Caller

_OF_CAPTURE: Final = ("capture", "state", "owner", "created_ns", "finished_ns", "reason")
_OF_TARGET: Final = (
    *("pid", "rank", "user", "command", "sources", "state", "reason", "message", "trace", "events", "waterfall"),
)
_TEXTS: Final = ("command", "message", "reason", "fix", "doing", "job")


def live(manager: CaptureManager) -> HostWatch:
    """The watches of a daemon, with these rows."""
    return HostWatch(manager, Rows(_process, lambda record: _capture(manager, record)))


async def lines(watch: HostWatch, caller: Caller) -> AsyncGenerator[bytes, None]:
    """Each moment as a line of JSON (docs/json.md), the first with all that there is, until the call ends.

    A call whose client reads nothing for LIVE_STALL_SECONDS is cancelled: what it watches costs something.
    """
    loop, call = asyncio.get_running_loop(), current_task()
    async with contextlib.aclosing(watch.follow(caller)) as moments:
        async for moment in moments:
            patience = loop.call_later(limits.LIVE_STALL_SECONDS, call.cancel)
            try:
                yield _line(moment)
            finally:
                patience.cancel()


def _line(moment: Moment) -> bytes:
    """Rows are texts already: many watches have the same ones."""
    text = (
        f'{{"whole": {json.dumps(moment.whole)}, "now_ns": {time.time_ns()}, '
        f'"processes": [{", ".join(moment.processes.values())}], "gone": {json.dumps(moment.gone)}, '
        f'"processes_left_out": {moment.left_out}, '
        f'"captures": [{", ".join(moment.captures.values())}], "captures_gone": {json.dumps(moment.captures_gone)}}}\n'
    )
    return text.encode("ascii")


def _process(sighting: Sighting) -> str:
    row = as_json.process_json(translate.sighting_message(sighting))
    return json.dumps({**_cut(row), "capture": sighting.held or None})


def _capture(manager: CaptureManager, record: CaptureRecord) -> str:
    """A capture of `profctl captures --json`, and what is of interest while it goes on."""
    some = record.targets[: limits.LIVE_TARGETS_MAX]
    message = translate.capture_message(record)
    told = as_json.capture_json(message)
    targets = []
    for target, row, status in zip(some, told["targets"], message.targets, strict=False):
        passed = [] if target.state.terminal else manager.passed(record.id, target.process)
        states = [{"state": state.label, "at_ns": at_ns} for state, at_ns in passed if not state.terminal]
        targets.append(_cut({**_only(row, _OF_TARGET), "doing": status.doing or None, "passed": states}))
    more = {
        "open_ended": record.open_ended,
        "duration_ns": record.options.duration_ns or None,
        "iterations": record.options.iterations or None,
        "targets": targets,
        "targets_left_out": len(record.targets) - len(some),
    }
    return json.dumps({**_only(told, _OF_CAPTURE), **more})


def _only(row: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: row[key] for key in keys}


def _cut(row: dict[str, Any]) -> dict[str, Any]:
    """Processes choose these, and may choose them long."""
    return {key: _short(value) if key in _TEXTS and isinstance(value, str) else value for key, value in row.items()}


def _short(text: str) -> str:
    most = limits.LIVE_TEXT_CHARACTERS_MAX
    return text if len(text) <= most else f"{text[: most - 1]}…"
