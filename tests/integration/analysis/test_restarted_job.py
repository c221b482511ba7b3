"""A real job that torchrun starts again: what is recorded of one start is not taken for what the other one did."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.importing import import_trace
from tests.support.many_ranks import CAPTURE, ask

pytestmark = pytest.mark.slow

RECORDED = ((30, 16), (20, 20))  # steps of each rank, by start: the longest traces of the ranks are of two starts
SECONDS = 480  # 150 at load 27, where it uses 17 s of CPU
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "GLOO_SOCKET_IFNAME": "lo",
    "OMP_NUM_THREADS": "1",
    # A store for each start. In the one that all starts share (so in torch 2.13), a rank that comes first finds
    # where the other one listened before it died, connects to nobody, and may wait for half an hour.
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
}
PROGRAM = f"""
import faulthandler, os, sys
from pathlib import Path
import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile

faulthandler.dump_traceback_later({SECONDS}, exit=True)  # no rank outlives the test: each has a session of its own
folder, rank, start = Path(sys.argv[1]), int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
torch.set_num_threads(1)
dist.init_process_group("gloo")
dist.barrier()
profiler = profile(activities=[ProfilerActivity.CPU], record_shapes=True)
profiler.start()
for step in range(max({RECORDED}[start])):
    if step == {RECORDED}[start][rank]:
        profiler.stop()
    numbers = torch.ones(1000 + step)
    numbers.sort()
    dist.all_reduce(numbers)
    if step < {RECORDED}[start][rank]:
        profiler.step()
if {RECORDED}[start][rank] == max({RECORDED}[start]):
    profiler.stop()
profiler.export_chrome_trace(str(folder / f"start{{start}}rank{{rank}}.json"))
dist.barrier()
if (start, rank) == (0, 1):
    sys.exit("this rank dies once")
if start == 0:
    dist.barrier()
dist.destroy_process_group()  # a thread of gloo's that is left ends the rank now and then: terminate called
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """What each rank of each start wrote."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("restarted")
    program = folder / "train.py"
    program.write_text(PROGRAM)
    options = ["--standalone", "--nproc-per-node=2", "--max-restarts=1", "--monitor-interval=0.1"]
    with (folder / "said").open("w") as said:
        job = subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", *options, str(program), str(folder)],
            env=ENVIRONMENT | {"HOME": str(folder)},
            stderr=said,
        )
    try:
        code = job.wait(timeout=SECONDS)
    finally:
        job.kill()
        job.wait()
    heard = (folder / "said").read_text()
    assert code == 0, heard
    assert "this rank dies once" in heard
    return [folder / f"start{start}rank{rank}.json" for start in (0, 1) for rank in (0, 1)]


def test_no_collective_of_one_start_is_one_of_the_other(files: list[Path], tmp_path: Path) -> None:
    """GIVEN both starts, which call the same with the same sizes WHEN asked THEN those of the longer one are matched,
    whichever file comes first."""
    stored = []
    for file in files:
        import_trace(file, tmp_path / file.stem, trace=file.stem, capture=CAPTURE, host="node0")
        stored.append(tmp_path / file.stem)
    for order in (stored, stored[::-1], [stored[0], stored[3], stored[2], stored[1]]):
        answer = ask("comm", order)
        [row] = [row for row in answer["collectives"] if row["matched"]]
        assert row["ranks"] == 2
        assert RECORDED[0][1] - 1 <= row["count"] <= RECORDED[0][1], "the last one may end as the recording does"
        assert {one["trace"] for one in answer["left_out"]} == {"start1rank0", "start1rank1"}
        assert all("the job was started again" in one["why"] for one in answer["left_out"])
        assert answer["clocks"]["within_ns"] is not None
