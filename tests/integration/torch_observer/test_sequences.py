"""Groups and sequence numbers of gloo's collectives, of a real job whose flight recorders are small."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from profd.answers.ranks import names
from profd.answers.ranks.recorded import recorded
from profd.events import NO_END
from profd.query import rules
from profd.segments.reader import TraceReader

from tests.support.daemon import RunningDaemon, running_daemon
from tests.support.waiting import until

pytestmark = pytest.mark.slow

RANKS, KEPT, SIZES = 2, 60, 5
FIRST = 16  # elements of a call of the second group; each further one has one more, SIZES in turn

RANK = f"""
import os, sys, threading
import profclient
profclient.attach()
import torch
import torch.distributed as dist
rank = int(os.environ["RANK"])
dist.init_process_group("gloo", init_method=f"file://{{sys.argv[1]}}/met", rank=rank, world_size={RANKS})
group = dist.new_group([0, 1])
done = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), done.set()), daemon=True).start()
print("ready", flush=True)
call, goes_on = 0, torch.ones(1)
while goes_on.item() == 1.0:
    with profclient.record_function("step"):
        handles = []
        for _ in range(3):
            call += 1
            ones = torch.ones({FIRST} + call % {SIZES})
            handles.append(dist.all_reduce(ones, group=group, async_op=True))
        for handle in handles:
            handle.wait()
    if rank == 0:
        dist.send(goes_on, 1)
    else:
        dist.recv(goes_on, 0)
    goes_on = torch.tensor([0.0 if done.wait(0.003) else 1.0])
    dist.all_reduce(goes_on, op=dist.ReduceOp.MIN)
"""


@pytest.fixture(scope="module")
def daemon(torch_builds: Path) -> Iterator[RunningDaemon]:
    with running_daemon() as found:
        yield found


@contextlib.contextmanager
def job(daemon: RunningDaemon, folder: Path, kept: int) -> Iterator[list[int]]:
    """The pids of its ranks, which call collectives."""
    program = folder / "rank.py"
    program.write_text(RANK)
    ranks = []
    for rank in range(RANKS):
        said = {"RANK": str(rank), "WORLD_SIZE": str(RANKS), "TORCH_FR_BUFFER_SIZE": str(kept)}
        env = {**daemon.environ, **said, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, str(program), str(folder)]
        pipe = subprocess.PIPE
        ranks.append(subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, stderr=subprocess.PIPE, text=True))
    try:
        for process in ranks:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n", process.communicate()[1]
        yield [process.pid for process in ranks]
        for process in ranks:
            said_last = process.communicate("", timeout=120)[1]
            assert process.returncode == 0, said_last
    finally:
        for process in ranks:
            process.kill()
            process.communicate()


def asked(daemon: RunningDaemon, *words: str) -> Any:
    command = [str(Path(sys.executable).with_name("profctl")), *words, "--json"]
    done = subprocess.run(command, env=daemon.environ, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def record(daemon: RunningDaemon, pids: list[int]) -> tuple[str, list[Path]]:
    """The capture, and its traces."""
    words = ["start", "--source", "sdk", "--shapes", "--duration", "1s", *(f"--pid={pid}" for pid in pids)]
    command = [str(Path(sys.executable).with_name("profctl")), *words]
    done = subprocess.run(command, env=daemon.environ, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    traces = [trace for trace in asked(daemon, "list") if trace["pid"] in pids][:RANKS]  # the newest first
    assert len({trace["capture"] for trace in traces}) == 1
    return traces[0]["capture"], [daemon.state_dir / "traces" / trace["id"] for trace in traces]


def with_more_calls(capture: str, traces: list[Path]) -> tuple[str, list[Path]] | None:
    """The same; None where a rank had no more calls than its recorder keeps, as on a host that is busy enough."""
    more = all(len(recorded(TraceReader(trace))) > 2 * KEPT for trace in traces)
    return (capture, traces) if more else None


def cut(reader: TraceReader) -> int:
    """How many collectives the end of the window cut. Such a one has a number, and no row in the answer; gloo has
    several threads, so that later ones may have ended.
    """
    count = 0
    for table in reader.iterate(("name", "end", "device_type")):
        on_host = rules.Named(names.is_on_host).of(table) & rules.is_cpu(table.column("device_type"))
        count += int((on_host & (table.column("end") == NO_END)).sum())
    return count


def test_collectives_have_the_groups_and_numbers_that_the_recorder_remembers(
    daemon: RunningDaemon, tmp_path: Path
) -> None:
    """GIVEN a recorder of 60 calls WHEN a window has more THEN each has the group and the number of its call: sizes
    tell which call of the second group it is, also of those that are no longer remembered.
    """
    with job(daemon, tmp_path, KEPT) as pids:
        recorded_more = until(lambda: with_more_calls(*record(daemon, pids)), "a window has more calls than are kept")
    assert recorded_more is not None
    capture, traces = recorded_more
    answer = asked(daemon, "comm", capture)
    assert not any("sequence" in remark for remark in answer["remarks"]), answer["remarks"]
    matched = {row["group"]: row["count"] for row in answer["collectives"] if row["matched"]}
    assert set(matched) == {"0 default_pg", "1"}, answer
    for trace in traces:
        reader = TraceReader(trace)
        assert 0 < len(reader.meta.remembered.calls) <= KEPT
        found = recorded(reader)
        second = [at for at in range(len(found)) if found.group[at] == "1"]
        numbers = found.sequence[second]
        first, last = int(numbers.min()), int(numbers.max())
        assert len(set(numbers.tolist())) == len(numbers)
        assert last - first + 1 - len(numbers) <= cut(reader)
        elements = [int(found.bytes[at]) // 4 for at in second]
        fits = [size == FIRST + number % SIZES for size, number in zip(elements, numbers.tolist(), strict=True)]
        assert all(fits), list(zip(numbers.tolist(), elements, strict=True))


def test_a_recorder_of_the_usual_size_is_not_asked(daemon: RunningDaemon, tmp_path: Path) -> None:
    with job(daemon, tmp_path, 2000) as pids:
        capture, _ = record(daemon, pids)
    answer = asked(daemon, "comm", capture)
    [remark] = [remark for remark in answer["remarks"] if "sequence" in remark]
    assert remark == (
        "Groups and sequence numbers are not recorded (rank 0, rank 1: their flight recorder was not asked (of "
        "attached processes it is at the end of a window with TORCH_FR_BUFFER_SIZE=300 or less))."
    )
    assert {row["group"] for row in answer["collectives"]} == {None}
