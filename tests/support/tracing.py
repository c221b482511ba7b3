"""Runs code under the Python tracer and reads what it left in the arena; and the slow twin that says what it should."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

from profclient import _recorder
from profclient.tracer import Tracer, path_prefixes

from tests.support.arena_reader import Arena, Event, Kind, read_arena

PYTHON = 2  # the recorder's bit of this source


@dataclass
class Recording:
    """Of one `tracing`. The arena is there once it has ended."""

    tracer: Tracer
    since: int
    left_out: str
    changed: str = ""
    arena: Arena | None = None
    statistics: dict[str, int] = field(default_factory=dict)

    def calls(self, tid: int | None = None) -> list[Event]:
        """Events of a thread, this one by default, in order of start."""
        assert self.arena is not None
        wanted = threading.get_native_id() if tid is None else tid
        return [event for event in self.arena.events if event.tid == wanted]


@contextmanager
def tracing(
    c_calls: bool = False, modules: bool = False, arena_bytes: int = 64 << 20, strings_bytes: int = 4 << 20
) -> Iterator[Recording]:
    """Record what runs inside; this module's own frames are among it."""
    _recorder.arm(arena_bytes=arena_bytes, strings_bytes=strings_bytes, sources=PYTHON)
    tracer = Tracer()
    try:
        since, left_out = tracer.start(c_calls=c_calls, modules=modules)
        recording = Recording(tracer, since, left_out)
        try:
            yield recording
        finally:
            recording.changed = tracer.stop()
            recording.statistics = _recorder.tracer_statistics()
    finally:
        _recorder.disarm()
        fd = os.dup(_recorder.arena_fd())
        try:
            arena = read_arena(fd)
        finally:
            os.close(fd)
            while not _recorder.release():
                pass
    recording.arena = arena


@dataclass
class Call:
    """A call in a tree of calls."""

    name: str
    children: list[Call] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"{self.name.rpartition(' ')[2]}{self.children or ''}"


def tree(events: list[Event], root: str) -> Call:
    """The calls below the only one of this name, by their times."""
    (top,) = (event for event in events if event.name == root)
    found = Call(root)
    stack = [(top.end, found)]
    for event in sorted(events, key=lambda event: event.start):
        if event.start <= top.start or event.start >= top.end:
            continue
        while stack[-1][0] < event.start:
            stack.pop()
        assert event.end, f"no end: {event}"
        assert event.end <= stack[-1][0], f"not nested: {event}"
        call = Call(event.name)
        stack[-1][1].children.append(call)
        stack.append((event.end, call))
    return found


def twin_tree(function: Callable[[], Any]) -> Call:
    """The same of a call of `function`, as Python's own sys.setprofile tells it: slow and obvious."""
    roots: list[Call] = []
    stack = [Call("")]

    def told(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            call = Call(name_of(frame.f_code))
            if frame.f_code is function.__code__:
                roots.append(call)
            stack[-1].children.append(call)
            stack.append(call)
        elif event == "return" and len(stack) > 1:
            stack.pop()

    sys.setprofile(told)
    try:
        function()
    finally:
        sys.setprofile(None)
    assert len(roots) == 1
    return roots[0]


def name_of(code: CodeType) -> str:
    """As torch.profiler writes it."""
    file = code.co_filename
    for prefix in path_prefixes():
        if file.startswith(prefix):
            file = file[len(prefix) :]
            break
    return f"{file}({code.co_firstlineno}): {code.co_name}"


def python_calls(events: list[Event]) -> list[Event]:
    """Those of Python functions that began while the tracer ran."""
    return [event for event in events if event.kind is Kind.PY_CALL and not event.flags & 2]
