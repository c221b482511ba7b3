"""A daemon that was told to record through cupti-python, and what a user sees; with a stand-in of that package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from profproto.v1 import capture_pb2 as pb

from tests.integration.cuda.conftest import PROFCTL, SUPPORT
from tests.integration.cuda.test_injected import ATTACHED
from tests.support.attached import Captures, sources, sql
from tests.support.daemon import RunningDaemon, running_daemon
from tests.support.waiting import until

WINDOW_NS = 3_000_000_000  # the hook imports some modules first, on a machine that may be busy


@pytest.fixture(scope="module")
def daemon() -> Iterator[RunningDaemon]:
    with running_daemon(environ={"PROFD_GPU_COLLECTOR": "cupti-python"}) as found:
        yield found


def profctl(daemon: RunningDaemon, *arguments: str) -> Any:
    command = [*PROFCTL, *arguments, "--json"]
    done = subprocess.run(command, env=daemon.environ, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.fixture
def job(daemon: RunningDaemon, built: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[int]:
    """The pid of a program that launches kernels, with or without the package."""
    about = tmp_path / "cupti_python.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: cupti-python\nVersion: 13.4.0\n")
    driver = tmp_path / "libcuda.so.1"
    shared = ["cc", "-shared", "-Wl,-soname,libcuda.so.1", "-x", "c", "/dev/null", "-o", str(driver)]
    subprocess.run(shared, check=True)
    package = f"{tmp_path}:{SUPPORT / 'fake_cupti_python'}" if request.param else os.environ.get("PYTHONPATH", "")
    process = subprocess.Popen(
        [sys.executable, "-c", ATTACHED, str(driver)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**daemon.environ, "PROFD_CUPTI_LIBRARY": str(built / "cupti.so"), "PYTHONPATH": package},
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        until(lambda: "sdk" in sources(daemon, process.pid), "the program is attached")
        yield process.pid
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("job", [True], indirect=True)
def test_the_trace_says_so(daemon: RunningDaemon, job: int) -> None:
    plan = profctl(daemon, "start", "--pid", str(job), "--duration", "1s", "--dry-run")
    assert "cupti-python" in json.dumps(plan)
    [target] = Captures(daemon).record(job, duration_ns=WINDOW_NS).targets
    assert target.state == pb.STATE_STORED, target.message
    assert "cuda: recorded by cupti-python: slow, can deadlock" in list(target.not_honoured)
    linked = (
        """select distinct l.name, k.name from events k join events l on k.linked = l.row where k.kind = 'kernel'"""
    )
    assert sql(daemon, target.trace, linked) == [["cudaLaunchKernel", "gemm"]]
    shown = profctl(daemon, "show", target.trace)
    assert "recorded by cupti-python: slow, can deadlock" in json.dumps(shown)
    # The fit of CUPTI's clock, and the bound of its error.
    gpu = shown["gpu"]
    assert (gpu["state"], gpu["collector"], gpu["clock"], gpu["clock_steps"]) == ("ok", "cupti-python", "realtime", 0)
    assert 0 < gpu["clock_error_ns"] <= shown["clock_error_ns"]
    assert isinstance(gpu["clock_offset_ns"], int)


@pytest.mark.parametrize("job", [False], indirect=True)
def test_without_the_package_nothing_else_is_taken(daemon: RunningDaemon, job: int) -> None:
    [target] = Captures(daemon).record(job, duration_ns=WINDOW_NS).targets
    assert any("cuda: cupti-python is not installed" in each for each in target.not_honoured)
    assert sql(daemon, target.trace, "select count(*) from events where kind = 'kernel'") == [[0]]
    assert profctl(daemon, "show", target.trace)["gpu"]["state"] == "no_cupti"
