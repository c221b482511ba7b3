"""A daemon, and programs that use stand-ins of CUDA and CUPTI: none of this is a claim about a GPU."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.support.attached import sources
from tests.support.daemon import RunningDaemon, running_daemon
from tests.support.waiting import until

SUPPORT = Path(__file__).parents[2] / "support"
PROFCTL = (sys.executable, "-W", "ignore", "-c", "from profclient.cli import main; main()")

Program = Callable[..., AbstractContextManager["subprocess.Popen[str]"]]


@pytest.fixture(scope="module")
def daemon() -> Iterator[RunningDaemon]:
    with running_daemon(environ={"PROFD_SDK_ARENA_BYTES": "24MiB"}) as found:
        yield found


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with cupti.so, a program and libcuda.so.1."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler to build the stand-ins for CUDA")
    folder = tmp_path_factory.mktemp("cuda")
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-pthread", "-o", folder / "cupti.so", SUPPORT / "fake_cupti.c"], check=True
    )
    subprocess.run([compiler, "-o", folder / "program", SUPPORT / "cuda_program.c", "-ldl"], check=True)
    subprocess.run([compiler, "-shared", "-x", "c", "/dev/null", "-o", folder / "libcuda.so.1"], check=True)
    return folder


@pytest.fixture
def program(daemon: RunningDaemon, built: Path) -> Program:
    """`with program(VARIABLE=value) as job`: a program without Python which a daemon knows."""

    @contextlib.contextmanager
    def running(to: RunningDaemon = daemon, **variables: str) -> Iterator[subprocess.Popen[str]]:
        process = subprocess.Popen(
            [*PROFCTL, "run", "--cuda", "--", str(built / "program"), str(built / "libcuda.so.1")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**to.environ, "PROFD_CUPTI_LIBRARY": str(built / "cupti.so"), **variables},
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            until(lambda: "cuda" in sources(to, process.pid), "the collector is attached")
            yield process
        finally:
            process.kill()
            process.communicate()

    return running
