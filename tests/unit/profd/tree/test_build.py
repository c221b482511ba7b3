from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profd.events import NO_END, DeviceType, EventTable, Kind
from profd.tree.build import Patch, apply

from tests.unit.profd.tree.tables import Event, Flow, build

RUNTIME, KERNEL = Kind.RUNTIME, Kind.KERNEL


def test_op_launch_kernel(tmp_path):
    events = [
        Event("aten::mm", 0, 100),
        Event("cudaLaunchKernel", 10, 20, kind=RUNTIME, correlation=7),
        Event("gemm", 15, 90, thread=1, kind=KERNEL, correlation=7),
        Event("gemm again", 95, 99, thread=1, kind=KERNEL, correlation=7),  # a graph: one launch, many kernels
        Event("cudaLaunchKernel", 110, 120, kind=RUNTIME, correlation=8),
        Event("stray", 130, 140, thread=1, kind=KERNEL, correlation=9),
        Event("cudaDeviceSynchronize", 150, 160, kind=RUNTIME, correlation=10),
        Event("nameless", 170, 180, thread=1, kind=KERNEL, correlation=0),
    ]
    result = build(tmp_path, [(events, [])])
    assert result.columns["parent"] == [-1, 0, 1, 1, -1, -1, -1, -1]
    assert result.columns["linked"] == [-1, -1, 1, 1, -1, -1, -1, -1]
    assert result.columns["depth"] == [0, 1, 2, 2, 0, 0, 0, 0]
    assert result.columns["self_time"] == [90, 10, 75, 4, 10, 10, 10, 10]
    assert result.anomalies == {"device_without_launch": 2, "launch_without_device": 1}


@pytest.mark.parametrize("segment_rows", [1, 2, 1000])
def test_a_launch_after_its_kernel(tmp_path, segment_rows):
    events = [
        Event("kernel", 5, 8, thread=1, kind=KERNEL, correlation=7),  # by a clock that runs ahead
        Event("aten::mm", 10, 100),
        Event("cudaLaunchKernel", 12, 20, kind=RUNTIME, correlation=7),
    ]
    result = build(tmp_path, [(events, [])], segment_rows)
    assert result.columns["parent"] == [2, -1, 1]
    assert result.columns["linked"] == [2, -1, -1]
    assert result.columns["depth"] == [2, 0, 1]
    assert result.anomalies == {}


def test_what_nests_and_what_does_not(tmp_path):
    def at(start, kind, **more):
        return Event(kind.name, start, start + 1, kind=kind, **more)

    events = [
        Event("range", 0, 100, kind=Kind.USER_ANNOTATION),
        at(10, Kind.OVERHEAD),
        at(20, Kind.TRACE),
        Event("counter", 30, 30, kind=Kind.COUNTER),
        at(40, Kind.CPU_OP, phase="b"),
        at(45, Kind.USER_ANNOTATION, is_async=1),
        Event("instant", 50, 50, kind=Kind.INSTANT),
        Event("[memory]", 60, 60, kind=Kind.MEMORY),
        at(70, Kind.DRIVER),
        at(80, Kind.SYNC),
        at(85, Kind.GPU_USER_ANNOTATION),
        at(90, Kind.SAMPLE),
        Event("[memory]", 95, 95, kind=Kind.MEMORY, device_type=DeviceType.CUDA),
    ]
    result = build(tmp_path, [(events, [])])
    assert result.columns["parent"] == [-1, -1, -1, -1, -1, -1, 0, 0, 0, 0, -1, 0, 0]
    assert result.columns["self_time"] == [97, 1, 1, NO_END, 1, 1, NO_END, NO_END, 1, 1, 1, 1, NO_END]


def test_flows_bind_and_half_flows_stay(tmp_path):
    events = [
        Event("aten::linear", 0, 50),
        Event("aten::addmm", 10, 40),
        Event("AddmmBackward0", 100, 150, thread=2),
        Event("aten::mm", 110, 120, thread=2),
    ]
    flows = [
        Flow(1, "s", 0, 10, "fwdbwd"),
        Flow(1, "f", 2, 100, "fwdbwd"),
        Flow(2, "s", 0, 30, "mine"),
        Flow(3, "f", 2, 155, "mine"),  # between events
        Flow(4, "s", 3, 20, "mine"),  # on a thread without events
        Flow(5, "f", -1, 20, "mine"),  # on no thread
    ]
    result = build(tmp_path, [(events, flows)])
    assert result.flows == {(1, "s"): 1, (1, "f"): 2, (2, "s"): 1, (3, "f"): -1, (4, "s"): -1, (5, "f"): -1}
    assert result.anomalies == {"unbound_flow": 3}


@pytest.mark.parametrize("segment_rows", [1, 1000])
def test_flows_link_where_there_is_no_correlation_id(tmp_path, segment_rows):
    events = [
        Event("aten::mm", 0, 100),
        Event("cudaLaunchKernel", 10, 20, kind=RUNTIME),
        Event("gemm", 30, 90, thread=1, kind=KERNEL),
        Event("cudaLaunchKernel", 40, 50, kind=RUNTIME, correlation=5),
        Event("relu", 92, 95, thread=1, kind=KERNEL, correlation=5),
        Event("stray", 97, 99, thread=1, kind=KERNEL),
    ]
    flows = [
        Flow(1, "s", 0, 10),
        Flow(1, "s", 0, 40),  # a duplicate: the first counts
        Flow(1, "f", 1, 30),
        Flow(2, "s", 0, 10),
        Flow(2, "f", 1, 92),  # the correlation id is known and counts
        Flow(3, "f", 1, 97),  # half a flow
    ]
    result = build(tmp_path, [(events, flows)], segment_rows)
    assert result.columns["linked"] == [-1, -1, 1, -1, 3, -1]
    assert result.columns["parent"] == [-1, 0, 1, 0, 3, -1]
    assert result.columns["depth"] == [0, 1, 2, 1, 2, 0]
    assert result.anomalies["device_without_launch"] == 1


def test_inputs_have_correlation_ids_of_their_own(tmp_path):
    def rank(start):
        return [
            Event("cudaLaunchKernel", start, start + 5, kind=RUNTIME, correlation=7),
            Event("kernel", start + 20, start + 30, thread=1, kind=KERNEL, correlation=7),
        ], []

    result = build(tmp_path, [rank(0), rank(10)])
    assert result.columns["start"] == [0, 10, 20, 30]
    assert result.columns["linked"] == [-1, -1, 0, 1]


def test_a_tid_as_number_and_as_text_is_one_thread(tmp_path):
    events = [Event("op", 0, 100, thread=0), Event("[memory]", 5, 5, thread=1, kind=Kind.MEMORY)]
    result = build(tmp_path, [(events, [Flow(1, "s", 1, 0)])], thread_ids=("17", 17))
    assert result.columns["parent"] == [-1, 0]
    assert result.columns["thread"] == [0, 1]  # as recorded
    assert result.flows == {(1, "s"): 0}


def test_no_events(tmp_path):
    result = build(tmp_path, [([], [Flow(1, "s", 0, 10)])])
    assert result.flows == {(1, "s"): -1}


EVENT = st.builds(
    Event,
    st.sampled_from(["op", "cudaLaunchKernel"]),
    st.integers(0, 30),
    st.integers(0, 40) | st.just(NO_END),
    st.integers(-1, 2),
    st.sampled_from(Kind),
    st.integers(0, 4) | st.just(NO_END),
    st.sampled_from("XBbi"),
)
FLOW = st.tuples(st.sampled_from("sf"), st.integers(-1, 2), st.integers(0, 35), st.sampled_from(["ac2g", "fwdbwd", ""]))


@settings(max_examples=60)
@given(st.lists(EVENT, max_size=40), st.lists(FLOW, max_size=20), st.integers(5, 20))
def test_segments_change_nothing(tmp_path_factory, events, flows, segment_rows):
    # Fewer rows start together than a segment holds: otherwise the longest of them cannot come first.
    starts = [event.start for event in events]
    segment_rows = max([segment_rows, *(starts.count(start) for start in starts)])
    records = [Flow(number, *flow) for number, flow in enumerate(flows)]
    folder = tmp_path_factory.getbasetemp()
    whole = build(folder, [(events, records)], 10**6)
    assert build(folder, [(events, records)], segment_rows) == whole
    # Whatever links what, there are no circles: everything is one below its parent.
    for parent, depth in zip(whole.columns["parent"], whole.columns["depth"], strict=True):
        assert depth == (whole.columns["depth"][parent] + 1 if parent >= 0 else 0)


def test_device_rows_that_claim_to_cause_each_other(tmp_path):
    events = [Event(name, start, start + 5, thread=1, kind=KERNEL) for name, start in (("a", 0), ("b", 10))]
    flows = [Flow(1, "s", 1, 0), Flow(1, "f", 1, 10), Flow(2, "s", 1, 10), Flow(2, "f", 1, 0)]
    result = build(tmp_path, [(events, flows)])
    assert result.columns["parent"] == [-1, -1]
    assert result.anomalies == {"device_without_launch": 2}


def test_patches_split_at_the_segment_that_is_still_in_memory():
    table = EventTable({"start": np.zeros(2, dtype=np.int64), "depth": np.zeros(2, dtype=np.int32)}, {}, first_row=10)
    patch = Patch(np.array([3, 9, 11]), {"depth": np.array([1, 2, 3], dtype=np.int32)})
    rest = apply(patch, table)
    assert table.columns["depth"].tolist() == [0, 3]
    assert rest is not None
    assert rest.rows.tolist() == [3, 9]
    assert rest.columns["depth"].tolist() == [1, 2]
    assert apply(Patch(np.array([10]), {"depth": np.array([5], dtype=np.int32)}), table) is None


@pytest.mark.parametrize("segment_rows", [3, 100])
def test_backward_ops_inherit_from_their_forward_thread(tmp_path, segment_rows):
    events = [
        Event("step", 0, 100, thread=0),
        Event("backward", 10, 60, thread=0),
        Event("autograd::engine::evaluate_function: MulBackward0", 20, 30, thread=1),  # as the function it calls
        Event("MulBackward0", 21, 29, thread=1, fwd_thread=1),
        Event("aten::mul", 22, 28, thread=1),
        Event("later", 40, 50, thread=1),  # names no forward thread
        Event("AddBackward0", 70, 80, thread=1, fwd_thread=1),  # `backward` has ended
        Event("AddBackward0", 120, 130, thread=1, fwd_thread=1),  # so has everything
        Event("Foreign", 140, 150, thread=1, fwd_thread=99),  # no thread has this id
    ]
    result = build(tmp_path, [(events, [])], segment_rows)
    if segment_rows == 100:
        assert result.columns["parent"] == [-1, 0, 1, 2, 3, -1, 0, -1, -1]
        assert result.columns["depth"] == [0, 1, 2, 3, 4, 0, 1, 0, 0]
    else:  # the engine's row ends its segment: what it calls is not seen with it
        assert result.columns["parent"] == [-1, 0, -1, 2, 3, -1, 0, -1, -1]
    # What runs beside a frame takes nothing from its self time.
    assert result.columns["self_time"] == [50, 50, 2, 2, 6, 10, 10, 10, 10]
