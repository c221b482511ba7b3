"""Steps of XSpaces, and what each of them led to on devices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from profd.query.steps import steps_of_trace
from profproto.xspace import xplane_pb2

from tests.support.random_xspace import Writer
from tests.support.xspace import store

US = 1_000_000  # ps


def trace_of(*, numbered: bool = True) -> bytes:
    """Two steps, the second with a step within it; kernels that run when their step is over."""
    space = xplane_pb2.XSpace()
    host = Writer(space.planes.add(id=1, name="/host:CPU"))
    device = Writer(space.planes.add(id=2, name="/device:GPU:0"))
    thread, stream = host.line(1, "python"), device.line(7, "Stream #7(Compute)")

    def step(name: str, start: int, lasts: int, number: int) -> None:
        host.event(thread, name, start * US, lasts * US, _r=1, **({"step_num": number} if numbered else {}))

    def kernel(call: int, start: int, lasts: int, op: str) -> None:
        told: dict[str, Any] = {"kernel_details": "r", "tf_op": op, "correlation_id": call}
        device.event(stream, "k", start * US, lasts * US, **told)

    step("train", 0, 10, 7)
    for call in (1, 2, 3):
        host.event(thread, "launch", call * US, US // 2, correlation_id=call, device_id=0)
    step("train", 20, 10, 8)
    step("inner", 21, 2, 9)
    host.event(thread, "launch", 24 * US, US, correlation_id=4, device_id=0)
    kernel(1, 5, 4, "net/mul:Mul")
    kernel(2, 9, 1, "net/add:Add")
    kernel(3, 10, 5, "net/mul:Mul")
    kernel(4, 40, 6, "net/add:Add")
    return bytes(space.SerializeToString())


def test_annotated_steps_and_their_ops(tmp_path: Path) -> None:
    answer = steps_of_trace(store(trace_of(), tmp_path / "t"))
    assert (answer["n"], answer["from"], answer["message"]) == (2, "StepTraceAnnotation", None)
    first, second = answer["steps"]
    assert (first["name"], first["duration_ns"], first["device_busy_ns"]) == ("train 7", 10_000, 5_000)
    assert first["ops"] == [
        {"name": "net/mul:Mul", "duration_ns": 9_000, "n": 2},
        {"name": "net/add:Add", "duration_ns": 1_000, "n": 1},
    ]
    assert (second["name"], second["device_busy_ns"]) == ("train 8", 0)
    assert second["ops"] == [{"name": "net/add:Add", "duration_ns": 6_000, "n": 1}]
    assert second["launch_delay_p50_ns"] == 16_000  # from 24 to 40 us


def test_steps_without_numbers_are_counted(tmp_path: Path) -> None:
    answer = steps_of_trace(store(trace_of(numbered=False), tmp_path / "t"))
    assert [step["name"] for step in answer["steps"]] == ["train 0", "train 1"]
    assert [len(step["ops"]) for step in answer["steps"]] == [2, 1]


def test_an_xspace_without_annotations_has_no_steps(tmp_path: Path) -> None:
    space = xplane_pb2.XSpace()
    host = Writer(space.planes.add(id=1, name="/host:CPU"))
    host.event(host.line(1, "python"), "train", 0, US)
    answer = steps_of_trace(store(bytes(space.SerializeToString()), tmp_path / "t"))
    assert (answer["n"], answer["from"]) == (0, None)
    assert "StepTraceAnnotation" in answer["message"]
