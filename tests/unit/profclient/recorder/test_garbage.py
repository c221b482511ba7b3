"""Collections of the garbage collector are rows, and nothing of ours stays in the program."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest
from profclient import _recorder, agent, garbage

from tests.support.recording import Recording

HOOKS = agent._hooks["garbage"]


@pytest.fixture
def recorded(session: Recording) -> Iterator[Recording]:
    HOOKS.start({})
    gc.disable()  # those of the tests alone
    yield session
    gc.enable()
    HOOKS.stop({})
    assert _recorder.on_collection not in gc.callbacks


def collections(session: Recording) -> list[str]:
    return [name for name in session.stop().names() if name.startswith("gc: ")]


def heap() -> list[object]:
    """Takes longer than 0.1 ms to look through."""
    return [[] for _ in range(100_000)]


def test_a_collection_is_a_row_of_the_thread_that_it_stops(recorded: Recording) -> None:
    kept = heap()
    for generation in (0, 2):
        gc.collect(generation)
    found = collections(recorded)
    assert found.count("gc: generation 2") == 1
    assert kept


def test_what_takes_less_than_a_tenth_of_a_millisecond_is_left_out(recorded: Recording) -> None:
    gc.collect()
    gc.freeze()
    try:
        before = recorded_rows()
        for _ in range(50):
            gc.collect(0)
        assert recorded_rows() - before < 25  # all of them but for a host that is busy
    finally:
        gc.unfreeze()


def recorded_rows() -> int:
    return _recorder.totals()["recorded"]


def test_a_program_that_clears_the_list_ends_the_rows_alone(recorded: Recording) -> None:
    gc.callbacks.clear()
    kept = heap()
    gc.collect()
    assert collections(recorded) == []
    assert kept


class Odd:
    """A callable that takes itself for every other one, or asks to be left alone."""

    def __init__(self, equal: bool) -> None:
        self.equal, self.asked = equal, 0

    __hash__ = None  # type: ignore[assignment]

    def __call__(self, phase: str, info: dict[str, int]) -> None: ...

    def __eq__(self, other: object) -> bool:
        self.asked += 1
        return self.equal


@pytest.mark.parametrize("equal", [False, True])
def test_callbacks_of_the_program_are_not_compared_and_stay(session: Recording, equal: bool) -> None:
    odd, known = Odd(equal), gc.callbacks
    known.insert(0, odd)
    try:
        HOOKS.start({})
        assert sum(one is _recorder.on_collection for one in known) == 1
        HOOKS.stop({})
        assert [one is odd for one in known].count(True) == 1
        assert not any(one is _recorder.on_collection for one in known)
        assert odd.asked == 0
    finally:
        known[:] = [one for one in known if one is not odd and one is not _recorder.on_collection]


def test_a_list_of_the_programs_in_that_place_is_not_the_collectors(
    session: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = gc.callbacks
    HOOKS.start({})
    monkeypatch.setattr(gc, "callbacks", ())
    HOOKS.stop({})
    assert _recorder.on_collection not in known


def test_it_stands_in_the_list_once(recorded: Recording) -> None:
    HOOKS.start({})
    assert gc.callbacks.count(_recorder.on_collection) == 1


def test_a_child_that_is_forked_meanwhile_has_none(recorded: Recording) -> None:
    """As the agent does in the child: it stops what runs."""
    pid = os.fork()
    if not pid:
        HOOKS.stop({})
        os._exit(_recorder.on_collection in gc.callbacks)
    assert os.waitpid(pid, 0)[1] == 0
    assert _recorder.on_collection in gc.callbacks


@pytest.mark.parametrize("given", [(), ("start",), (1, {}), ("stop", {}), ("stop", None), ("start", {}), ("other", 3)])
def test_whatever_it_is_called_with_nothing_is_raised(recorded: Recording, given: tuple[object, ...]) -> None:
    assert _recorder.on_collection(*given) is None  # type: ignore[arg-type]


def test_a_collection_that_began_before_the_recording_is_none(session: Recording) -> None:
    _recorder.on_collection("stop", {"generation": 2})
    assert collections(session) == []
    assert garbage.__doc__
