"""What an agent says of the names of its program's threads."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from profclient import thread_names
from profclient.thread_names import ALL_BYTES


@contextmanager
def waiting(*threads: threading.Thread | str) -> Iterator[list[int]]:
    """Their ids, while they wait."""
    over = threading.Event()
    made = [each if isinstance(each, threading.Thread) else threading.Thread(name=each) for each in threads]
    for thread in made:
        thread.run = over.wait  # type: ignore[method-assign, assignment]
        thread.start()
    try:
        yield [thread.native_id or 0 for thread in made]
    finally:
        over.set()
        for thread in made:
            thread.join()


class Liar(threading.Thread):
    looked_at = False

    def __getattribute__(self, name: str) -> Any:
        assert not Liar.looked_at, "code of the program ran"
        return super().__getattribute__(name)


def said() -> dict[int, str]:
    pairs = (pair.partition(" ") for pair in thread_names.thread_names().split(";"))
    return {int(tid): name for tid, _, name in pairs}


def test_every_thread_that_python_has_named() -> None:
    with waiting("loader 1", "a;b\nc", "x" * 5000, "\ud800") as (loader, odd, long, half):
        names = said()
    assert half not in names, "nothing of it can be said"
    assert names[threading.main_thread().native_id or 0] == "MainThread"
    assert (names[loader], names[odd], names[long]) == ("loader 1", "a,b c", "x" * 64)


def test_nothing_of_the_program_runs() -> None:
    with waiting(Liar(name="liar")) as (liar,):
        Liar.looked_at = True
        try:
            names = said()
        finally:
            Liar.looked_at = False
    assert names[liar] == "liar"


def test_what_does_not_fit_is_left_out() -> None:
    with waiting(*("n" * 64 for _ in range(60))):
        assert ALL_BYTES - 80 < len(thread_names.thread_names()) <= ALL_BYTES


def test_a_program_without_threads_has_a_first_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "threading")
    assert said() == {os.getpid(): "MainThread"}
