"""The question `comm`, on files of simulated jobs whose truth is known."""

from __future__ import annotations

from pathlib import Path

import pytest
from profd.answers.ranks import names
from profd.events import NO_END, Kind

from tests.support.many_ranks import ask, member
from tests.support.simulated_job import TRANSFER_NS, Plan
from tests.support.tables import Event
from tests.unit.profd.answers.ranks.test_ranks import stored

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


@pytest.mark.parametrize("sequence", [False, True], ids=["by order", "by number"])
def test_nccl_with_its_group_and_sizes(tmp_path: Path, sequence: bool) -> None:
    """GIVEN 30 all-reduces of 4 MB, rank 2 always last THEN bytes, bandwidth, waiting and who was last are told."""
    plan = Plan(late={2: 2_000_000}, device=True, sequence=sequence, cut={1: 4})
    (row, alone) = ask("comm", stored(tmp_path, plan))["collectives"]
    assert (row["group"], row["op"], row["ranks"], row["count"]) == ("dp", "all_reduce", 3, 26)
    assert row["bytes"] == 26 * 4_000_000
    assert row["transfer_ns"] == pytest.approx(26 * TRANSFER_NS, rel=0.15)
    assert row["bus_bytes_per_second"] == pytest.approx(row["bytes"] * 4 / 3 / row["transfer_ns"] * 1e9)
    assert row["waiting_ns"] == pytest.approx(26 * 2_000_000 * 2 / 3, rel=0.1)  # of three ranks two wait
    (last,) = row["last"]
    assert (last["rank"], last["times"]) == (2, 26)
    assert (alone["matched"], alone["count"], alone["waiting_ns"]) == (False, 8, None)  # two ranks, before the third


def test_who_came_last_is_proved_where_no_clock_could_be_the_reason(tmp_path: Path) -> None:
    """GIVEN rank 2 late by 2 ms each second time WHEN other times bound the clocks THEN these are proved."""
    (row,) = ask("comm", stored(tmp_path, Plan(late={2: 2_000_000}, every=2)))["collectives"]
    most = row["last"][0]
    assert (most["rank"], most["proved"]) == (2, 15)
    assert most["times"] >= 15
    assert all(not one["proved"] for one in row["last"][1:])


def test_sizes_that_were_not_recorded(tmp_path: Path) -> None:
    (row,) = ask("comm", stored(tmp_path, Plan(shapes=False)))["collectives"]
    assert (row["group"], row["bytes"], row["bus_bytes_per_second"]) == (None, None, None)
    assert row["count"] == 30


def test_streams_of_several_devices_are_several_groups(tmp_path: Path) -> None:
    """GIVEN ranks with two devices, a stream 7 on both, begun in turns WHEN groups are unknown THEN none is mixed."""

    def kernel(rank: int, step: int, device: int) -> Event:
        at, later = 10_000_000 * step + 37_000 * step * step, (step + rank) % 2 == device
        place = {"device": 2 * rank + device, "stream": 7}
        end = at + 5_000_000 + 3_000_000 * device
        return Event(NCCL, at + 1_000_000 * later, end, Kind.KERNEL, 20 + device, fields=place)

    ranks = [[kernel(rank, step, device) for step in range(20) for device in (0, 1)] for rank in (0, 1)]
    traces = [member(tmp_path, rank, sorted(some, key=lambda one: one.start)) for rank, some in enumerate(ranks)]
    groups = [(row["group"], row["count"], row["transfer_ns"]) for row in ask("comm", traces)["collectives"]]
    assert sorted(groups) == [
        ("stream 7 of the 1st device", 20, 20 * 4_000_000),
        ("stream 7 of the 2nd device", 20, 20 * 7_000_000),
    ]


def test_one_rank_has_nobody_to_wait_for(tmp_path: Path) -> None:
    answer = ask("comm", stored(tmp_path, Plan(ranks=1)))
    assert answer["status"] == "not enough data"
    assert "One rank alone" in answer["message"]
    (row,) = answer["collectives"]
    assert (row["matched"], row["count"], row["last"]) == (False, 30, [])


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all_reduce"),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)", "send_recv"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", "reduce_scatter"),
        ("ncclReduceScatterRingLLKernel_sum_f32(ncclColl)", "reduce_scatter"),
        ("_allgather_base", "all_gather"),
        ("reduce_scatter_tensor_coalesced", "reduce_scatter"),
        ("nccl:all_to_all", "all_to_all"),
        ("gloo:barrier", "barrier"),
        ("allreduce_coalesced", "all_reduce"),
        ("aten::mm", ""),
    ],
    ids=range(10),
)
def test_what_a_collective_is_called(name: str, op: str) -> None:
    assert names.op_of(name) == op
    assert names.is_kernel(name) == name.startswith(("ncclDev", "ncclKernel", "ncclReduce"))


def test_the_factor_of_the_bus() -> None:
    assert names.bus_factor("all_reduce", 4) == 1.5
    assert names.bus_factor("all_gather", 4) == 0.75
    assert names.bus_factor("all_reduce", 1) is None
    assert names.bus_factor("send_recv", 4) is None


def test_a_collective_that_the_window_cut(tmp_path: Path) -> None:
    """GIVEN the last all-reduce of rank 0 without an end WHEN asked THEN the others are found on both ranks."""

    def all_reduce(rank: int, step: int) -> Event:
        at = 10_000_000 * step + 37_000 * step * step
        cut = rank == 0 and step == 19
        return Event("gloo:all_reduce", at + 900_000 * rank, NO_END if cut else at + 5_000_000, Kind.USER_ANNOTATION)

    traces = [member(tmp_path, rank, [all_reduce(rank, step) for step in range(20)]) for rank in (0, 1)]
    both = [row for row in ask("comm", traces)["collectives"] if row["ranks"] == 2]
    assert [(row["op"], row["count"]) for row in both] == [("all_reduce", 19)]
