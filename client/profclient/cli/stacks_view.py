"""Stacks as `profctl where` prints them: one group for each stack, busy threads first."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import click
from profproto.v1 import capture_pb2

from profclient.cli.output import printable, wrapped

FRAMES_SHOWN: Final = 40
NO_FRAMES: Final = "(no Python frames)"
INCOMPLETE: Final = "    (stack may be incomplete)"
# A frame of a library without symbols is named by its address, which differs between equal ranks. gdb's sign for it.
_ADDRESS: Final = re.compile(r"\b0x[0-9a-f]+\b")
_UNNAMED: Final = "??"
# Where packages and the standard library lie: long, alike in every frame, and of no help. --json has whole paths.
_INSTALLED: Final = re.compile(r"^/.*/(?:(?:site|dist)-packages|lib(?:64)?/python3\.\d+t?)/")

_Key = tuple[bool, bool, tuple[str, ...]]  # waits, may be incomplete, frames


@dataclass(slots=True)
class _Group:
    threads: Counter[str] = field(default_factory=Counter)
    processes: set[tuple[str, int]] = field(default_factory=set)


def print_stacks(processes: Sequence[capture_pb2.ProcessStacks], hosts: Sequence[str] = ()) -> None:
    """Busy threads, then those that wait; of each the stack first that most threads have: a hang is one large group.

    `hosts`: of the processes, where they are of several.
    """
    groups: dict[_Key, _Group] = {}
    for number, process in enumerate(processes):
        on = f"{hosts[number]} " if hosts else ""
        if process.error:
            click.echo(f"{on}pid {process.pid}: {printable(process.error)}\n")
        if any(thread.stopped for thread in process.threads):
            stopped = f"{on}pid {process.pid}: a signal has stopped it; kill -CONT {process.pid} lets it go on"
            click.echo(wrapped(stopped, hang=2) + "\n")
        names = {thread.thread: _name(thread) for thread in process.threads}
        for thread in process.threads:
            group = groups.setdefault(_key(thread), _Group())
            group.threads[f"{on}{_process(process)} {_name(thread)} ({_state(thread, names)})"] += 1
            group.processes.add((on, process.pid))
    busy_before = False
    for key, group in sorted(groups.items(), key=lambda item: (item[0][0], -item[1].threads.total())):
        if key[0] and busy_before:
            click.echo("Waiting:\n")
        busy_before = not key[0]
        _print_group(key, group)


def _print_group(key: _Key, group: _Group) -> None:
    _waits, incomplete, frames = key
    if group.threads.total() > 1:
        where = f" of {len(group.processes)} processes" if len(group.processes) > 1 else ""
        click.echo(f"{group.threads.total()} threads{where}:")
    for who, times in group.threads.items():
        click.echo(who if times == 1 else f"{who} x{times}")
    click.echo("\n".join(f"    {frame}" for frame in frames[:FRAMES_SHOWN]))
    if len(frames) > FRAMES_SHOWN:
        click.echo(f"    … {len(frames) - FRAMES_SHOWN} outer frames (--json has them)")
    if incomplete:
        click.echo(INCOMPLETE)
    click.echo()


def _key(thread: capture_pb2.ThreadStack) -> _Key:
    frames = tuple(_frame(frame) for frame in thread.frames) or (NO_FRAMES,)
    return not (thread.active or thread.owns_gil), thread.incomplete, frames


def _frame(frame: capture_pb2.Frame) -> str:
    file = _INSTALLED.sub("…/", frame.file)
    place = f"{file}:{frame.line}" if frame.line else file
    return printable(f"{_ADDRESS.sub(_UNNAMED, frame.function)} ({place})")


def _process(process: capture_pb2.ProcessStacks) -> str:
    rank = f"rank {process.rank} " if process.HasField("rank") else ""
    return f"{rank}pid {process.pid}"


def _name(thread: capture_pb2.ThreadStack) -> str:
    return printable(thread.name) or f"thread {thread.thread}"


def _state(thread: capture_pb2.ThreadStack, names: dict[int, str]) -> str:
    if thread.joins:
        return f"waiting for the end of {names.get(thread.joins, f'thread {thread.joins}')}"
    if thread.lock_holder:
        return f"waiting for a lock that {names.get(thread.lock_holder, f'thread {thread.lock_holder}')} holds"
    if thread.stopped:
        return "stopped by a signal"
    if thread.waits_gil:
        return "waiting for the GIL"
    return "running, holds the GIL" if thread.owns_gil else "running" if thread.active else "waiting"
