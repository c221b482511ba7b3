"""Groups of ranks: several at once, parts of the job, made anew; jobs started again; numbers that contradict."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.importing import import_trace
from tests.support.many_ranks import CAPTURE, ask

MS = 1_000_000
KERNELS = {"all_reduce": "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "send_recv": "ncclDevKernel_SendRecv"}


@dataclass(frozen=True)
class Call:
    """A collective as one rank saw it. `group`: its name and its ranks."""

    start: int
    end: int
    group: tuple[str, str]
    sequence: int | None
    op: str = "all_reduce"
    stream: int = 7
    elements: int = 1000


def trace(folder: Path, rank: int, calls: Iterable[Call], name: str = "", at: int = 0, **meta: Any) -> Path:
    """What Kineto writes of them, a step of 10 ms each; `at`: ns that all of it is later."""
    events = []
    for call in calls:
        said = {"Collective name": call.op, "dtype": "Float", "In msg nelems": call.elements}
        said |= {"Out msg nelems": call.elements, "Process Group Name": call.group[0]}
        said |= {"Process Group Ranks": call.group[1], "device": 0, "stream": call.stream}
        said |= {} if call.sequence is None else {"Seq": call.sequence}
        events.append(_event("kernel", KERNELS[call.op], call.start + at, call.end + at, call.stream, said))
    last = max(event["ts"] + event["dur"] for event in events) * 1000
    first = min(event["ts"] for event in events) * 1000
    for step, begin in enumerate(range(int(first) - MS, int(last), 10 * MS)):
        events.append(_event("user_annotation", f"ProfilerStep#{step}", begin, begin + 10 * MS, 1, {}))
    path = folder / f"{name or f'rank{rank}'}.json"
    path.write_text(json.dumps({"distributedInfo": {"rank": rank, "world_size": 4}, "traceEvents": events}))
    stored = folder / path.stem
    import_trace(path, stored, **{"trace": path.stem, "capture": CAPTURE, "host": "node0", **meta})
    return stored


def _event(category: str, name: str, start: int, end: int, thread: int, args: dict[str, Any]) -> dict[str, Any]:
    times = {"ts": start / 1000, "dur": (end - start) / 1000}
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": thread, **times, "args": args}


def met(ranks: Sequence[int], rank: int, step: int, group: tuple[str, str], **more: Any) -> Call:
    """The collective of a step: each rank comes 0.1 ms later than the one before, and all leave together."""
    at = step * 10 * MS + 37_000 * step * step
    late = 100_000 * list(ranks).index(rank)
    return Call(at + late, at + 4 * MS, group, step, **more)


def matched(answer: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """By group: of how many ranks, and how many collectives."""
    return {row["group"]: (row["ranks"], row["count"]) for row in answer["collectives"] if row["matched"]}


def test_parts_of_the_job_are_groups_of_their_own(tmp_path: Path) -> None:
    """GIVEN ranks 0, 1 and 2, 3 as two groups of one name, beside all WHEN asked THEN each is matched for itself."""
    traces = []
    for rank in range(4):
        part = (0, 1) if rank < 2 else (2, 3)
        half = [met(part, rank, step, ("1", str(list(part)))) for step in range(30)]
        whole = [replace(met(range(4), rank, step, ("0", "[0, 1, 2, 3]")), stream=9) for step in range(0, 30, 2)]
        later = [replace(call, start=call.start + 5 * MS, end=call.end + 5 * MS) for call in whole]
        traces.append(trace(tmp_path, rank, [*half, *later]))
    answer = ask("comm", traces)
    assert matched(answer) == {"1 [0, 1]": (2, 30), "1 [2, 3]": (2, 30), "0 [0, 1, 2, 3]": (4, 15)}
    assert answer["remarks"] == []


def test_two_threads_of_a_rank_may_call_two_groups_in_any_order(tmp_path: Path) -> None:
    """GIVEN two groups, called by two threads in another order on each rank, without numbers THEN each is matched."""
    traces = []
    for rank in (0, 1):
        calls = []
        for step in range(30):
            for number, group in enumerate(("dp", "tp")):
                call = met((0, 1), rank, step, (group, "[0, 1]"), stream=7 + number)
                ahead = 2 * MS * ((rank + step + number) % 2)
                calls.append(replace(call, sequence=None, start=call.start + ahead, end=call.end + 2 * MS))
        traces.append(trace(tmp_path, rank, calls))
    answer = ask("comm", traces)
    assert matched(answer) == {"dp [0, 1]": (2, 30), "tp [0, 1]": (2, 30)}
    assert answer["remarks"] == []


def test_what_two_ranks_send_each_other_is_not_matched_and_disturbs_nothing(tmp_path: Path) -> None:
    traces = []
    for rank in (0, 1):
        calls = [met((0, 1), rank, step, ("0", "[0, 1]")) for step in range(30)]
        sent = [
            replace(call, op="send_recv", start=call.end + MS, end=call.end + 2 * MS)
            for call in calls[:: 1 + rank]  # not as often: a rank may send to others, too
        ]
        traces.append(trace(tmp_path, rank, [*calls, *sent]))
    answer = ask("comm", traces)
    assert matched(answer) == {"0 [0, 1]": (2, 30)}
    alone = [(row["op"], row["count"]) for row in answer["collectives"] if not row["matched"]]
    assert alone == [("send_recv", 45)]


@pytest.mark.parametrize("name", ["another name", "the same name"])
def test_a_group_that_is_made_anew_in_the_window(tmp_path: Path, name: str) -> None:
    """GIVEN a group that is destroyed and made anew, and counts from 0 again WHEN a window begins later on one rank
    THEN all that both have is matched.
    """
    traces = []
    for rank in (0, 1):
        calls = [met((0, 1), rank, step, ("3", "[0, 1]")) for step in range(3 * rank, 20)]
        again = "4" if name == "another name" else "3"
        anew = [met((0, 1), rank, step, (again, "[0, 1]")) for step in range(20, 40)]
        calls += [replace(call, sequence=step) for step, call in enumerate(anew)]
        traces.append(trace(tmp_path, rank, calls))
    answer = ask("comm", traces)
    counts = {"3 [0, 1]": (2, 17), "4 [0, 1]": (2, 20)} if name == "another name" else {"3 [0, 1]": (2, 37)}
    assert matched(answer) == counts
    assert answer["remarks"] == []


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda call: replace(call, elements=call.elements + 1), "different collectives by the same sequence number"),
        (lambda call: replace(call, sequence=(call.sequence or 0) + 1000), "no sequence number in common"),
    ],
    ids=["other sizes", "other numbers"],
)
def test_numbers_that_contradict_are_refused_and_the_others_are_compared(
    tmp_path: Path, change: Callable[[Call], Call], why: str
) -> None:
    traces = []
    for rank in range(3):
        calls = [met(range(3), rank, step, ("0", "[0, 1, 2]")) for step in range(30)]
        traces.append(trace(tmp_path, rank, map(change, calls) if rank == 2 else calls))
    answer = ask("comm", traces)
    assert matched(answer) == {"0 [0, 1, 2]": (2, 30)}
    [remark] = answer["remarks"]
    assert remark.startswith("Collectives of rank 2 could not be told to be those of the others")
    assert why in remark


def restarted(folder: Path, died: int = 2) -> list[Path]:
    """Both starts of a job of three ranks, of which one died early: most steps of rank `died` are of the second."""
    found = []
    for start, steps in enumerate((40, 30)):
        for rank in range(3):
            whole = steps - 15 * (start == 0 and rank == died)
            calls = [met(range(3), rank, step, ("0", "[0, 1, 2]")) for step in range(whole)]
            found.append(trace(folder, rank, calls, f"start{start}rank{rank}", at=start * 2000 * MS))
    return found


def test_a_job_that_was_started_again_in_the_window(tmp_path: Path) -> None:
    """GIVEN traces of both starts WHEN asked THEN the ranks that are compared are of one, and the others are named."""
    answer = ask("comm", restarted(tmp_path))
    assert matched(answer) == {"0 [0, 1, 2]": (3, 25)}
    assert answer["remarks"] == []
    assert {one["trace"] for one in answer["left_out"]} == {f"start1rank{rank}" for rank in range(3)}
    for one in answer["left_out"]:
        assert "the job was started again" in one["why"]


def test_a_job_that_was_started_again_and_lasted(tmp_path: Path) -> None:
    first = [path for path in restarted(tmp_path) if "start0" in path.name]
    (tmp_path / "more").mkdir()
    later = []
    for rank in range(3):
        calls = [met(range(3), rank, step, ("0", "[0, 1, 2]")) for step in range(60)]
        later.append(trace(tmp_path / "more", rank, calls, f"again{rank}", at=5000 * MS))
    for order in itertools.islice(itertools.permutations([*first, *later]), 0, 720, 120):
        answer = ask("comm", list(order))
        assert matched(answer) == {"0 [0, 1, 2]": (3, 60)}


def test_the_children_of_a_rank_are_no_start_of_the_job(tmp_path: Path) -> None:
    """GIVEN a loader's worker that has its rank's number and runs beside it THEN the rank's own trace is looked at."""
    traces = [
        trace(tmp_path, rank, [met((0, 1), rank, step, ("0", "[0, 1]")) for step in range(30)]) for rank in (0, 1)
    ]
    child = [met((0, 1), 1, step, ("0", "[0, 1]")) for step in range(12, 15)]
    traces.append(trace(tmp_path, 1, child, "child"))
    answer = ask("comm", traces)
    assert matched(answer) == {"0 [0, 1]": (2, 30)}
    [one] = answer["left_out"]
    assert (one["trace"], one["why"]) == ("child", "another trace of rank 1 has more steps or collectives")


def test_a_clock_of_another_host_does_not_say_that_a_job_was_started_again(tmp_path: Path) -> None:
    """GIVEN rank 1 on a host whose clock is a day ahead, and rank 0 of two starts THEN rank 1 stays in the table."""
    day = 86_400_000 * MS
    calls = [[met((0, 1), rank, step, ("0", "[0, 1]")) for step in range(30)] for rank in (0, 1)]
    traces = [trace(tmp_path, 0, calls[0]), trace(tmp_path, 1, calls[1], at=day, host="node1")]
    traces.append(trace(tmp_path, 0, calls[0][:20], "again", at=3000 * MS))
    answer = ask("comm", traces)
    assert matched(answer) == {"0 [0, 1]": (2, 30)}
    assert [one["trace"] for one in answer["left_out"]] == ["again"]
