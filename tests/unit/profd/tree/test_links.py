"""What launched what, case by case; expected rows were worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from profd.events import NO_END, Kind

from tests.unit.profd.tree.tables import Event, Flow, build

WRAP = (1 << 32) - 1  # CUPTI's correlation ids have 32 bits


def launch(start: int, correlation: int = NO_END, name: str = "cudaLaunchKernel") -> Event:
    return Event(name, start, start + 5, kind=Kind.RUNTIME, correlation=correlation)


def kernel(start: int, correlation: int = NO_END, kind: Kind = Kind.KERNEL) -> Event:
    return Event("kernel", start, start + 5, thread=1, kind=kind, correlation=correlation)


def linked(folder: Path, events: list[Event], *flows: Flow) -> tuple[list[int], dict[str, int]]:
    result = build(folder, [(events, list(flows))])
    return result.columns["linked"], result.anomalies


def test_an_id_that_wraps_around(tmp_path: Path) -> None:
    events = [
        launch(0, WRAP - 1),
        launch(10, WRAP),
        kernel(20, WRAP - 1),
        launch(30, 1),
        kernel(40, WRAP),
        kernel(50, 1),
    ]
    assert linked(tmp_path, events) == ([-1, -1, 0, -1, 1, 3], {})


@pytest.mark.parametrize("gone", [1, WRAP, -1])  # some releases print the 32 bits with a sign
def test_an_id_that_is_used_again_is_the_latest_calls(tmp_path: Path, gone: int) -> None:
    events = [launch(0, gone), kernel(10, gone), launch(20, gone), kernel(30, gone), kernel(40, gone)]
    assert linked(tmp_path, events) == ([-1, 0, -1, 2, 2], {"correlation_reused": 1})


def test_ids_of_two_processes_in_one_file_collide_and_are_counted(tmp_path: Path) -> None:
    events = [launch(0, 7), launch(10, 7), kernel(20, 7), kernel(30, 7)]  # one kernel of each, but whose is whose?
    assert linked(tmp_path, events) == ([-1, -1, 1, 1], {"correlation_reused": 1, "launch_without_device": 1})


def test_a_graph_is_one_launch_of_many_kernels(tmp_path: Path) -> None:
    events = [launch(0, 9, "cudaGraphLaunch")]
    events += [
        kernel(10 + 10 * n, 9, kind) for n, kind in enumerate([Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET, Kind.KERNEL])
    ]
    assert linked(tmp_path, events) == ([-1, 0, 0, 0, 0], {})


def test_kernels_without_launches_and_launches_without_kernels(tmp_path: Path) -> None:
    events = [
        launch(0, 1),
        launch(10, 2, "cudaMemcpyAsync"),  # may have been done on the host
        launch(20, 3, "cudaLaunchHostFunc"),  # runs on the host
        launch(30, NO_END, "cuLaunchKernel"),
        kernel(40, 5),
        kernel(50, 6, Kind.MEMSET),
        kernel(60, 7, Kind.SYNC),  # need not be anybody's
    ]
    assert linked(tmp_path, events) == ([-1] * 7, {"launch_without_device": 2, "device_without_launch": 2})


def test_of_duplicate_starts_the_first_counts(tmp_path: Path) -> None:
    events = [launch(0), launch(10), kernel(20)]
    flows = [Flow(1, "s", 0, 0), Flow(1, "s", 0, 10), Flow(1, "s", 0, 10), Flow(1, "f", 1, 20)]
    links, anomalies = linked(tmp_path, events, *flows)
    assert links == [-1, -1, 0]
    assert anomalies["duplicate_flow_start"] == 2
    assert "half_flow" not in anomalies


def test_half_flows_are_counted_by_id_and_link_nothing(tmp_path: Path) -> None:
    events = [launch(0), kernel(20)]
    flows = [Flow(1, "s", 0, 0), Flow(2, "f", 1, 20), Flow(2, "f", 1, 20), Flow(3, "s", 0, 0), Flow(3, "f", 1, 20)]
    links, anomalies = linked(tmp_path, events, *flows)
    assert links == [-1, 0]
    assert anomalies["half_flow"] == 2


def test_of_several_flows_to_a_kernel_the_first_that_began_somewhere_counts(tmp_path: Path) -> None:
    events = [launch(0), launch(10), kernel(20), kernel(30, 4)]
    flows = [
        *(Flow(9, "f", 1, 20), Flow(1, "s", 0, 10), Flow(2, "s", 0, 0)),
        *(Flow(1, "f", 1, 20), Flow(2, "f", 1, 20), Flow(2, "f", 1, 30)),  # the last has a correlation id
    ]
    links, anomalies = linked(tmp_path, events, *flows)
    assert links == [-1, -1, 1, -1]
    assert {name: anomalies[name] for name in ("several_flows", "half_flow")} == {"several_flows": 1, "half_flow": 1}


def test_several_kernels_of_one_flow(tmp_path: Path) -> None:
    events = [launch(0), kernel(20), kernel(30)]
    links, anomalies = linked(tmp_path, events, Flow(1, "s", 0, 0), Flow(1, "f", 1, 20), Flow(1, "f", 1, 30))
    assert (links, anomalies.keys() & {"half_flow", "several_flows", "duplicate_flow_start"}) == ([-1, 0, 0], set())


def test_other_flows_are_no_launches(tmp_path: Path) -> None:
    events = [launch(0), kernel(20)]
    flows = [
        Flow(1, "s", 0, 0, "mine"),
        Flow(1, "s", 0, 0, "mine"),
        Flow(1, "f", 1, 20, "mine"),
        Flow(2, "s", 0, 0, ""),
    ]
    assert linked(tmp_path, events, *flows)[0] == [-1, -1]
    assert "half_flow" not in linked(tmp_path, events, *flows)[1]


def test_flows_that_lead_back_to_where_they_came_from(tmp_path: Path) -> None:
    kernels = [kernel(10 * n) for n in range(3)]
    circle: list[Any] = [Flow(n, "s", 1, 10 * n) for n in range(3)] + [
        Flow(n, "f", 1, 10 * ((n + 1) % 3)) for n in range(3)
    ]
    links, anomalies = linked(tmp_path, kernels, *circle)
    assert links == [-1, -1, -1]
    assert anomalies == {"device_without_launch": 3}
