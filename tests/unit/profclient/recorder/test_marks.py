"""What is recorded without a range object: instants, counters, memory, backend events, steps."""

from __future__ import annotations

import json
import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profclient import _recorder
from profclient._recorder import (
    counter,
    instant,
    record_alloc,
    record_backend_event,
    record_function,
    record_out_of_memory,
    step,
)

from tests.support.arena_reader import BACKEND, Ext, Kind
from tests.support.recording import Recording, recording


def test_instants(session: Recording) -> None:
    with record_function("range"):
        instant("here", reason="test")
        instant("bare")
    arena = session.stop()
    here = arena.one("here")
    assert here.kind is Kind.INSTANT
    assert json.loads(here.ext[Ext.ARGS]) == {"reason": "test"}
    assert arena.one("bare").ext == {}
    assert arena.one("range").start <= here.start <= arena.one("range").end


@given(st.floats())
def test_counters_keep_every_bit(value: float) -> None:
    with recording() as session:
        counter("c", value)
        found = session.stop().one("c").value
    assert found == value or (math.isnan(found) and math.isnan(value))


def test_counters_take_what_is_a_number(session: Recording) -> None:
    counter("i", 7)
    with pytest.raises(TypeError):
        counter("bad", "x")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="counter takes a name"):
        counter(1, 2)  # type: ignore[arg-type]
    arena = session.stop()
    assert arena.one("i").value == 7.0
    assert arena.names() == ["i"]


def memory_of(raw: bytes) -> tuple[int, int, int | None, int | None]:
    device_type, _, index, _, allocated, reserved = struct.unpack("<BBhIqq", raw)
    unknown = -(2**63)
    return device_type, index, None if allocated == unknown else allocated, None if reserved == unknown else reserved


def test_memory(session: Recording) -> None:
    record_alloc(0xFFFF_FFFF_FFFF_0000, 1 << 40, 1, 3, allocated=5, reserved=6)
    record_alloc(0xFFFF_FFFF_FFFF_0000, -(1 << 40))
    record_out_of_memory(123, device_type=1, device_index=0)
    alloc, free, out = session.stop().events
    assert (alloc.kind, alloc.end, alloc.payload) == (Kind.ALLOC, 0xFFFF_FFFF_FFFF_0000, 1 << 40)
    assert memory_of(alloc.ext[Ext.MEMORY]) == (1, 3, 5, 6)
    assert free.payload == 2**64 - (1 << 40)
    assert memory_of(free.ext[Ext.MEMORY]) == (0, -1, None, None)
    assert (out.kind, out.payload) == (Kind.OUT_OF_MEMORY, 123)


def test_memory_is_a_source_of_its_own() -> None:
    with recording(sources=1) as session:
        record_alloc(1, 2)
        instant("seen")
        assert session.stop().names() == ["seen"]


def test_backend_events_carry_the_times_they_were_given(session: Recording) -> None:
    record_backend_event("kernel", 1_790_000_000_000_001, 1_790_000_000_000_003, grid=[1, 2])
    record_backend_event("early", 0.5, 1.25)
    with pytest.raises(ValueError, match="ends at or after its start"):
        record_backend_event("backwards", 2, 1)
    with pytest.raises(ValueError, match="ends at or after its start"):
        record_backend_event("never", float("nan"), 1)
    arena = session.stop()
    kernel = arena.one("kernel")
    assert kernel.flags == BACKEND
    assert struct.unpack("<qq", kernel.ext[Ext.EXTERNAL_TIME]) == (1_790_000_000_000_001_000, 1_790_000_000_000_003_000)
    assert json.loads(kernel.ext[Ext.ARGS]) == {"grid": [1, 2]}
    assert struct.unpack("<qq", arena.one("early").ext[Ext.EXTERNAL_TIME]) == (500, 1250)
    assert len(arena.events) == 2


def test_steps_count_on_while_nothing_is_recorded() -> None:
    first = step()
    with recording() as session:
        assert step() == first + 1
        with record_function("work"):
            pass
        assert step() == first + 2
        arena = session.stop()
    ended = arena.one(f"ProfilerStep#{first + 1}")
    assert ended.start <= arena.one("work").start <= arena.one("work").end <= ended.end
    assert arena.one(f"ProfilerStep#{first + 2}").end == 0
    assert step() == first + 3


def test_everything_is_harmless_while_idle() -> None:
    instant("x", a=1)
    counter("x", 1)
    record_alloc(1, 1)
    record_out_of_memory(1)
    record_backend_event("x", 1, 2)
    assert _recorder.sources() == 0
