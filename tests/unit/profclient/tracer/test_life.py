"""The tracer comes, takes nothing over, and goes without a trace of itself."""

from __future__ import annotations

import cProfile
import gc
import os
import subprocess
import sys
import threading
import weakref
from types import FrameType
from typing import Any

import pytest
from profclient import _recorder
from profclient.agent import NotHonoured
from profclient.tracer import Tracer

from tests.support.tracing import PYTHON, name_of, tracing

MONITORED = sys.version_info >= (3, 12)
monitored = pytest.mark.skipif(not MONITORED, reason="this Python has no sys.monitoring")
profiled = pytest.mark.skipif(MONITORED, reason="this Python is traced through sys.monitoring")


def leaf() -> None:
    """What is called."""


def hidden() -> None:
    """What is called while this thread is paused."""


def _pauses() -> None:
    _recorder.tracer_pause()
    hidden()
    _recorder.tracer_pause()  # is no other pause
    hidden()


def _resumes() -> None:
    hidden()
    _recorder.tracer_resume()


def _goes_on() -> None:
    leaf()
    _pauses()
    hidden()
    _resumes()
    leaf()


def said_by(script: str) -> str:
    """The output of a Python of its own, which has nothing to complain of."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("c_calls", [False, True])
def test_what_a_paused_thread_does_is_left_out(c_calls: bool) -> None:
    with tracing(c_calls=c_calls) as recording:
        _goes_on()
        leaf()
    assert recording.arena is not None
    named = {function: name_of(function.__code__) for function in (leaf, hidden, _pauses, _resumes, _goes_on)}
    found = {f: [e for e in recording.calls() if e.name == name] for f, name in named.items()}
    assert not found[hidden]
    [pausing], [whole] = found[_pauses], found[_goes_on]
    before, after, last = found[leaf]
    # THEN the call that paused ended there, and what it was called by is one call, around what came later
    assert whole.start < before.start < before.end < pausing.start < pausing.end < after.start < after.end < whole.end
    assert whole.end < last.start
    # and what was running when the thread went on has ended as it would
    assert all(event.end for event in found[_resumes])


def test_a_thread_that_was_paused_before_begins_when_it_goes_on() -> None:
    began, ended = threading.Event(), threading.Event()

    def paused() -> None:
        _recorder.tracer_pause()
        hidden()
        began.wait()
        hidden()
        _recorder.tracer_resume()
        leaf()
        ended.set()

    thread = threading.Thread(target=paused)
    thread.start()
    with tracing() as recording:
        began.set()
        ended.wait()
    thread.join()
    calls = recording.calls(thread.native_id)
    names = [event.name for event in calls]
    assert name_of(hidden.__code__) not in names
    assert names.count(name_of(leaf.__code__)) == 1
    assert names.count(name_of(paused.__code__)) == 1


def _calls_itself(times: int) -> None:
    if times:
        _calls_itself(times - 1)
        return
    _pauses()
    _resumes()


def test_calls_of_one_function_within_each_other_go_on_after_a_pause() -> None:
    with tracing() as recording:
        _calls_itself(5)
    found = [event for event in recording.calls() if event.name == name_of(_calls_itself.__code__)]
    assert len(found) == 6
    assert [event.start for event in found] == sorted(event.start for event in found)
    ends = [event.end for event in found]
    assert all(ends)
    assert ends == sorted(ends, reverse=True)


def test_pauses_without_a_recording_do_nothing() -> None:
    _recorder.tracer_resume()
    _recorder.tracer_pause()
    _recorder.tracer_resume()
    with tracing() as recording:
        leaf()
    assert name_of(leaf.__code__) in [event.name for event in recording.calls()]


def _nobody_is_called() -> None:
    assert sys.getprofile() is None
    assert threading.getprofile() is None
    if MONITORED:
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined]
        assert [monitoring.get_tool(number) for number in (2, 3, 4)] == [None] * 3
        for number in (3, 4):
            monitoring.use_tool_id(number, "test")
            assert monitoring.get_events(number) == 0
            monitoring.free_tool_id(number)
    else:
        assert _recorder.tracer_profilers() == []


def _profile_function(tids: list[Any], ready: threading.Event, stop: threading.Event) -> None:
    ready.set()
    stop.wait()
    tids.append(sys.getprofile())


def test_after_the_stop_no_thread_calls_us() -> None:
    ready, stop = threading.Event(), threading.Event()
    found: list[Any] = []
    thread = threading.Thread(target=_profile_function, args=(found, ready, stop))
    thread.start()
    ready.wait()
    with tracing():
        leaf()
    stop.set()
    thread.join()
    assert found == [None]
    _nobody_is_called()


def test_nothing_of_the_program_is_kept() -> None:
    with tracing():
        scope: dict[str, Any] = {}
        exec(compile("def made(): pass\nmade()", "made.py", "exec"), scope)
        code = weakref.ref(scope["made"].__code__)
    scope.clear()
    gc.collect()
    assert code() is None


def test_it_may_be_started_and_stopped_many_times() -> None:
    for _ in range(20):
        with tracing() as recording:
            leaf()
        names = [event.name for event in recording.calls()]
        assert names.count(name_of(leaf.__code__)) == 1
    _nobody_is_called()


def test_nothing_is_traced_when_nothing_is_recorded() -> None:
    with pytest.raises(RuntimeError, match="no capture records Python calls"):
        Tracer().start()
    _nobody_is_called()


def test_a_recording_that_ends_first_is_no_harm() -> None:
    """The window's end is native code's: it does not wait for the GIL."""
    _recorder.arm(arena_bytes=2 << 20, sources=PYTHON)
    tracer = Tracer()
    tracer.start()
    leaf()
    _recorder.disarm()
    for _ in range(1000):
        leaf()
    while not _recorder.release():
        pass
    leaf()
    assert tracer.stop() == ""
    _nobody_is_called()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_is_not_traced() -> None:
    with tracing() as recording:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                leaf()
                recording.tracer.stop()
                _nobody_is_called()
                status = 0
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
        leaf()
    assert status == 0
    assert sum(event.name == name_of(leaf.__code__) for event in recording.calls()) == 1


def _ignore(frame: FrameType, event: str, argument: object) -> None:
    """A profile function of the program's own."""


# --- the program's own profilers ---


@profiled
def test_a_profiler_that_runs_is_left_alone_and_named() -> None:
    profiler = cProfile.Profile()
    profiler.enable()
    try:
        with pytest.raises(NotHonoured, match=r"being profiled by cProfile\.Profile; end that"), tracing():
            pass
        leaf()
    finally:
        profiler.disable()
    profiler.create_stats()
    assert any(name == "leaf" for _, _, name in profiler.stats)
    _nobody_is_called()


@profiled
def test_a_profiler_of_another_thread_is_left_alone_too() -> None:
    ready, stop = threading.Event(), threading.Event()

    def run() -> None:
        sys.setprofile(_ignore)
        ready.set()
        stop.wait()

    thread = threading.Thread(target=run)
    thread.start()
    ready.wait()
    try:
        with pytest.raises(NotHonoured, match=r"profiled by .*\._ignore; end that"), tracing():
            pass
    finally:
        stop.set()
        thread.join()


@profiled
def test_a_hook_for_later_threads_is_left_alone_and_named() -> None:
    threading.setprofile(_ignore)
    try:
        with tracing() as recording:
            leaf()
        assert recording.left_out.startswith("calls on threads that start later: threading.setprofile() is ")
        assert "_ignore" in recording.left_out
        assert threading.getprofile() is _ignore
    finally:
        threading.setprofile(None)


@profiled
def test_a_profiler_that_comes_meanwhile_stays() -> None:
    with tracing() as recording:
        sys.setprofile(_ignore)
        leaf()
    try:
        assert sys.getprofile() is _ignore
        assert recording.changed == "1 threads were taken over by another profiler meanwhile"
    finally:
        sys.setprofile(None)


@profiled
def test_a_program_may_put_back_what_it_found() -> None:
    """`sys.setprofile(sys.getprofile())` is what tools do around their own work."""

    def borrowed() -> None:
        before = sys.getprofile()
        sys.setprofile(None)
        leaf()
        sys.setprofile(before)
        leaf()

    with tracing() as recording:
        borrowed()
        leaf()
    names = [event.name for event in recording.calls()]
    assert names.count(name_of(leaf.__code__)) == 2
    (event,) = (event for event in recording.calls() if event.name == name_of(borrowed.__code__))
    assert event.end
    _nobody_is_called()


@profiled
def test_a_profiler_that_hands_on_what_it_is_told_stays() -> None:
    told = []

    with tracing() as recording:
        ours: Any = sys.getprofile()

        def chained(frame: FrameType, event: str, argument: object) -> None:
            told.append(event)
            ours(frame, event, argument)

        sys.setprofile(chained)
        leaf()
        leaf()
        found = sys.getprofile()
        sys.setprofile(None)
    assert found is chained
    assert told.count("call") == 2
    assert recording.changed == ""
    _nobody_is_called()


@profiled
def test_a_thread_that_was_taken_over_for_a_while_is_found_again() -> None:
    """Returns that were missed end when it is found; nothing of it stays open."""

    def outer() -> None:
        inner()
        leaf()  # nobody is told

    def inner() -> None:
        sys.setprofile(_ignore)
        sys.setprofile(None)

    def others() -> None:
        go_on.wait()
        for _ in range(3000):  # a thread looks for others every 4096 events
            leaf()

    go_on = threading.Event()
    thread = threading.Thread(target=others)
    thread.start()
    with tracing() as recording:
        outer()
        go_on.set()
        thread.join()
        leaf()
    calls = recording.calls()
    (found,) = (event for event in calls if event.name == name_of(leaf.__code__))
    for function in (outer, inner):
        (event,) = (event for event in calls if event.name == name_of(function.__code__))
        assert 0 < event.end < found.start
    assert recording.statistics["resynchronised"] == 0


@profiled
def test_a_thread_that_was_found_again_has_its_frames_in_the_next_recording() -> None:
    ready, take, taken, go_on = (threading.Event() for _ in range(4))

    def run() -> None:
        ready.set()
        take.wait()
        sys.setprofile(_ignore)
        sys.setprofile(None)
        taken.set()
        go_on.wait()
        leaf()

    thread = threading.Thread(target=run)
    thread.start()
    ready.wait()
    with tracing():
        take.set()
        taken.wait()
        for _ in range(3000):  # it is found
            leaf()
    with tracing() as recording:
        go_on.set()
        thread.join()
    names = [event.name for event in recording.calls(thread.native_id)]
    assert names.count(name_of(run.__code__)) == 1


@profiled
def test_what_is_put_back_after_the_stop_takes_itself_out() -> None:
    with tracing():
        before = sys.getprofile()
    sys.setprofile(before)
    leaf()
    leaf()
    assert sys.getprofile() is None


@monitored
def test_other_tools_run_beside_it() -> None:
    profiler = cProfile.Profile()
    with tracing() as recording:
        profiler.enable()  # would raise if its id were taken
        leaf()
        profiler.disable()
    profiler.create_stats()
    assert any(name == "leaf" for _, _, name in profiler.stats)
    assert name_of(leaf.__code__) in [event.name for event in recording.calls()]
    _nobody_is_called()


@monitored
def test_without_an_id_it_says_who_has_them() -> None:
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined]
    monitoring.use_tool_id(4, "Tool A")
    monitoring.use_tool_id(3, "Tool B")
    try:
        with pytest.raises(NotHonoured, match="taken by 'Tool A' and 'Tool B'"), tracing():
            pass
    finally:
        monitoring.free_tool_id(3)
        monitoring.free_tool_id(4)


def test_threading_is_not_imported_for_it() -> None:
    """Its first importer becomes its main thread: that must not be the agent's."""
    script = (
        "import sys, _thread, time\n"
        "sys.modules.pop('threading', None)\n"
        "from profclient import _recorder\n"
        "from profclient.tracer import Tracer\n"
        "def leaf(): pass\n"
        "def run():\n"
        "    tracer = Tracer()\n"
        "    _recorder.arm(sources=2); tracer.start(but_caller=True)\n"
        "    running.release(); stop.acquire()\n"
        "    tracer.stop(); _recorder.disarm(); done.release()\n"
        "running, stop, done = (_thread.allocate_lock() for _ in range(3))\n"
        "for lock in (running, stop, done): lock.acquire()\n"
        "_thread.start_new_thread(run, ())\n"
        "running.acquire(); leaf(); stop.release(); done.acquire()\n"
        "print(_recorder.tracer_statistics()['events'] > 0, 'threading' in sys.modules)\n"
        "import threading\n"
        "print(threading.current_thread() is threading.main_thread())\n"
    )
    assert said_by(script).split() == ["True", "False", "True"]
