"""Which stacks may lack outer frames."""

from __future__ import annotations

import pytest
from profd.model.frame import Frame
from profd.sources.pyspy.stack import ThreadStack, completed, marked


def _thread(*functions: str, thread: int = 1, active: bool = True) -> ThreadStack:
    return ThreadStack(thread, "", active, False, tuple(Frame(function, "a.py", 1) for function in functions))


@pytest.mark.parametrize("root", ["<module>", "_run_module_as_main", "_bootstrap", "Thread._bootstrap"])
def test_usual_roots(root: str) -> None:
    assert not marked([_thread("f", root)])[0].incomplete


def test_a_stack_that_begins_in_the_middle() -> None:
    assert marked([_thread("f", "g")])[0].incomplete


def test_no_frames_are_nothing_incomplete() -> None:
    assert not marked([_thread()])[0].incomplete


def test_a_later_look_that_is_whole_is_taken_and_the_others_stay() -> None:
    whole, torn = _thread("f", "<module>"), _thread("f", thread=2)
    later = [_thread("g", "<module>"), _thread("g", "_bootstrap", thread=2)]
    assert completed(marked([whole, torn]), later) == [whole, later[1]]


def test_of_two_torn_ones_the_longer_is_kept() -> None:
    (kept,) = completed(marked([_thread("f", "g")]), [_thread("f")])
    assert (len(kept.frames), kept.incomplete) == (2, True)
    (kept,) = completed([kept], [_thread("f", "g", "h")])
    assert (len(kept.frames), kept.incomplete) == (3, True)


def test_a_thread_of_a_c_library_that_waits_is_whole() -> None:
    waiting = _thread("callback", active=False)
    assert completed(marked([waiting]), [waiting]) == [waiting]


def test_a_thread_that_ended_meanwhile_stays() -> None:
    torn = marked([_thread("f")])
    assert completed(torn, []) == torn
