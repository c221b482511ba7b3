"""NVTX ranges of a program without Python, beside the kernels that it launches in them. All of CUDA is a stand-in."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from profproto.v1 import capture_pb2 as pb

from tests.integration.cuda.conftest import PROFCTL, SUPPORT
from tests.support.attached import Captures, sources, sql
from tests.support.daemon import RunningDaemon
from tests.support.waiting import until

pytestmark = pytest.mark.slow


def test_ranges_and_kernels_are_one_trace(daemon: RunningDaemon, built: Path, tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    assert compiler is not None  # `built` has used it
    program = tmp_path / "program"
    subprocess.run([compiler, "-o", program, SUPPORT / "nvtx_program.c", "-ldl"], check=True)
    job = subprocess.Popen(
        [*PROFCTL, "run", "--cuda", "--", str(program), str(built / "libcuda.so.1")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**daemon.environ, "PROFD_CUPTI_LIBRARY": str(built / "cupti.so")},
    )
    try:
        assert job.stdout is not None
        assert job.stdout.readline() == "ready\n"
        until(lambda: "cuda" in sources(daemon, job.pid), "the collector is attached")
        for _ in range(2):
            [target] = Captures(daemon).record(job.pid).targets
            assert (target.state, list(target.sources)) == (pb.STATE_STORED, ["cuda"]), target.message
            rows = sql(
                daemon,
                target.trace,
                """select o.name, i.name, i.kind, l.name, k.name from events k join events l on k.linked = l.row
                   join events i on l.parent = i.row join events o on i.parent = o.row
                   where k.kind = 'kernel' group by all""",
            )
            assert rows == [["solve", "smooth", "user_annotation", "cudaLaunchKernel", "jacobi"]]
        assert job.poll() is None
    finally:
        job.kill()
        job.communicate()
