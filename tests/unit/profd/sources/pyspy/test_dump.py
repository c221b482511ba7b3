"""What py-spy prints of a process, taken in pieces."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd.errors import JobFailed
from profd.sources.pyspy.dump import THREADS_MAX, Dump, RawThread

NAMES = st.text(st.sampled_from('a}{],[\n "\\é'), max_size=8)
FRAMES = st.fixed_dictionaries({"name": NAMES, "filename": NAMES, "line": st.integers(0, 99)})
THREADS = st.lists(
    st.fixed_dictionaries(
        {
            "thread_id": st.integers(0, 1 << 48),
            "thread_name": st.none() | NAMES,
            "active": st.booleans(),
            "frames": st.lists(FRAMES, max_size=3),
        }
    ),
    max_size=6,
)


def in_pieces(text: bytes, size: int) -> list[RawThread]:
    dump, said = Dump(), bytearray()
    for first in range(0, len(text), size):
        said += text[first : first + size]
        dump.take(said)
    return dump.end(bytes(said), 1)


def as_said(thread: dict[str, Any]) -> tuple[Any, ...]:
    frames = [(frame["name"], frame["filename"], frame["line"]) for frame in thread["frames"]]
    return thread["thread_id"], thread["thread_name"], thread["active"], frames


def as_read(thread: RawThread) -> tuple[Any, ...]:
    frames = [(frame.name, frame.filename, frame.line) for frame in thread.frames]
    return thread.thread_id, thread.thread_name, thread.active, frames


@given(THREADS, st.integers(1, 400), st.sampled_from([2, None]))
def test_wherever_it_is_cut_and_however_it_is_laid_out(
    threads: list[dict[str, Any]], size: int, indent: int | None
) -> None:
    text = json.dumps(threads, indent=indent, ensure_ascii=False).encode()
    assert list(map(as_read, in_pieces(text, size))) == list(map(as_said, threads))


def pool(count: int, deep: int) -> bytes:
    """Threads that all wait in the same place, and one that does not."""
    frames = [{"name": "f", "filename": "/job.py", "line": line} for line in range(deep)]
    threads = [{"thread_id": at, "thread_name": f"t{at}", "frames": frames} for at in range(count)]
    return json.dumps([*threads, {"thread_id": count, "frames": frames[1:]}], indent=2).encode()


def test_equal_stacks_are_held_once() -> None:
    dump, text = Dump(), pool(512, 101)
    said = bytearray(text)
    dump.take(said)
    assert dump.bytes < len(text) / 100
    threads = dump.end(bytes(said), 1)
    assert len(threads) == 513
    assert len({id(thread.frames) for thread in threads}) == 2


def test_threads_beyond_the_limit_are_left_out() -> None:
    assert len(in_pieces(pool(THREADS_MAX + 10, 1), 1 << 16)) == THREADS_MAX


@pytest.mark.parametrize(
    "text", [b"", b"{}", b"[[[[", b'[{"thread_id": "x"}]', b"\377", b"x" + pool(3, 1), pool(3, 1)[:-9]]
)
def test_what_is_none_of_its_answers(text: bytes) -> None:
    with pytest.raises(JobFailed, match="malformed"):
        in_pieces(text, 50)
