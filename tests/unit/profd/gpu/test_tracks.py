"""Readings as counter tracks: which GPUs, which times, how many."""

from __future__ import annotations

import json
from typing import Any

import pytest
from profd.gpu import tracks as module
from profd.gpu.readings import Gpu, Reading
from profd.gpu.tracks import Tracks

SECOND = 1_000_000_000
REALTIME = 1_700_000_000 * SECOND  # of CLOCK_MONOTONIC 0


def reading(*gpus: Gpu) -> Reading:
    return Reading(gpus, "580.65.06")


def gpu(index: int = 0, taken_ns: int = SECOND, **values: Any) -> Gpu:
    return Gpu(index, f"GPU-{index}", "H100", **{"minor": index, "taken_ns": taken_ns, "error_ns": 40, **values})


def made(gpus: tuple[int, ...] = (), pid: int = 4711) -> Tracks:
    return Tracks(pid, gpus, SECOND // 10, REALTIME)


def decoded(tracks: Tracks, start_ns: int | None = None, end_ns: int | None = None) -> tuple[dict[str, Any], list[Any]]:
    pieces = tracks.chrome(start_ns, end_ns)
    assert pieces is not None
    found = json.loads(b"".join(pieces))
    return found[module.HEADER_KEY], found["traceEvents"]


def test_many_samples_are_never_one_text() -> None:
    """Of ten minutes of eight GPUs it would be 133 MB, and a user has hundreds of targets."""
    tracks = made()
    for second in range(200):
        tracks.add(reading(*(gpu(index, power_watts=350.5, taken_ns=second * SECOND) for index in range(8))))
    pieces = tracks.chrome(None, None)
    assert pieces is not None
    assert max(map(len, pieces)) < 4096
    assert len(decoded(tracks)[1]) == 1600


def test_one_sample() -> None:
    tracks = made()
    tracks.add(reading(gpu(power_watts=350.5, throttled=frozenset({"hw_thermal"}), gpm={"sm_active_ratio": 0.5})))
    head, events = decoded(tracks)
    assert head == {"interval_ns": SECOND // 10, "clock_error_ns": 40, "driver": "580.65.06"}
    series = {event["name"]: event["args"] for event in events}
    assert set(series) == {"power_watts", "sm_active_ratio", "throttled"}  # what is not said is not zero
    assert series["power_watts"] == {"value": 350.5}
    assert (series["throttled"]["hw_thermal"], series["throttled"]["sw_power_cap"]) == (1, 0)
    assert {event["pid"] for event in events} == {"GPU 0"}
    assert {event["ts"] for event in events} == {(REALTIME + SECOND) / 1000}


def test_memory_of_the_process_and_of_no_other() -> None:
    tracks = made()
    tracks.add(reading(gpu(processes={4711: 3 << 30, 12: 5})))
    assert [[one.processes for one in gpus] for gpus in tracks._kept] == [[{4711: 3 << 30}]]
    _, [event] = decoded(tracks)
    assert (event["name"], event["args"]) == ("process_memory_used_bytes", {"value": 3 << 30})


@pytest.mark.parametrize(
    ("nodes", "computing", "shown"),
    [
        ((1,), (), {"GPU 1"}),  # the node it holds, whatever NVML says
        ((), (0,), {"GPU 0"}),  # those it computes on
        ((), (), {"GPU 0", "GPU 1", "GPU 1 MIG 2"}),  # nobody knows
        ((1,), (0,), {"GPU 1"}),
    ],
)
def test_the_gpus_of_the_process(nodes: tuple[int, ...], computing: tuple[int, ...], shown: set[str]) -> None:
    tracks = made(nodes)
    found = [gpu(index, busy_ratio=1.0, processes=dict.fromkeys([4711] * (index in computing), 1)) for index in (0, 1)]
    instance = gpu(1, mig=2, memory_used_bytes=7)
    tracks.add(reading(*found, *([instance] if not nodes else [])))
    _, events = decoded(tracks)
    assert {event["pid"] for event in events} == shown


@pytest.mark.parametrize(
    ("minors", "computing", "shown"),
    [
        ((None, None), (1,), {"GPU 1"}),
        ((None, None), (), {"GPU 0", "GPU 1"}),
        ((0, None), (), {"GPU 0", "GPU 1"}),  # one of its two nodes is none that is known
        ((5, None), (), {"GPU 1"}),
        ((0, 2), (), {"GPU 0", "GPU 1"}),
        ((0, 2, None), (2,), {"GPU 0", "GPU 1"}),  # its nodes are known
    ],
)
def test_gpus_whose_node_the_driver_does_not_say(
    minors: tuple[int | None, ...], computing: tuple[int, ...], shown: set[str]
) -> None:
    tracks = made((0, 2))
    tracks.add(
        reading(
            *(
                gpu(index, minor=minor, busy_ratio=1.0, processes=dict.fromkeys([4711] * (index in computing), 1))
                for index, minor in enumerate(minors)
            )
        )
    )
    _, events = decoded(tracks)
    assert {event["pid"] for event in events} == shown


def test_only_what_falls_into_the_recording() -> None:
    tracks = made()
    for second in range(10):
        tracks.add(reading(gpu(taken_ns=second * SECOND, power_watts=float(second))))
    _, events = decoded(tracks, REALTIME + 3 * SECOND, REALTIME + 5 * SECOND)
    assert [event["args"]["value"] for event in events] == [3.0, 4.0, 5.0]
    assert tracks.chrome(REALTIME + 20 * SECOND, None) is None


def test_a_long_recording_is_thinned_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GPU_SAMPLES_MAX", 8)
    tracks = made()
    for number in range(100):
        tracks.add(reading(gpu(taken_ns=number, power_watts=float(number))))
    head, events = decoded(tracks)
    shown = [event["args"]["value"] for event in events]
    assert shown == [float(number) for number in range(0, 100, 16)]  # evenly, over all of it
    assert head["interval_ns"] == 16 * SECOND // 10


def test_no_driver() -> None:
    tracks = made()
    tracks.add(Reading(absent="no NVIDIA driver answers (Driver Not Loaded)"))
    assert tracks.chrome(None, None) is None
    assert tracks.absent == "no NVIDIA driver answers (Driver Not Loaded)"
