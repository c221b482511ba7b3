"""NVTX ranges of a program under `profctl run`, from the program to the stored trace. No GPU takes part."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from profproto.v1 import capture_pb2 as pb

from tests.support.attached import Captures, sources, sql
from tests.support.daemon import RunningDaemon, running_daemon
from tests.support.waiting import until

pytest.importorskip("nvtx", reason="the package nvtx is not installed")
pytestmark = pytest.mark.slow

PROFCTL = (sys.executable, "-W", "ignore", "-c", "from profclient.cli import main; main()")

# Its NVTX has been used before anybody records.
PROGRAM = """
import os, select, nvtx
with nvtx.annotate("before", domain="data"):
    print("ready", os.environ["NVTX_INJECTION64_PATH"], flush=True)
while not select.select([0], [], [], 0.001)[0]:
    with nvtx.annotate("load", domain="data", payload=64):
        with nvtx.annotate("read"):
            nvtx.mark("seen")
"""


@pytest.fixture(scope="module")
def daemon() -> Iterator[RunningDaemon]:
    with running_daemon(environ={"PROFD_SDK_ARENA_BYTES": "24MiB"}) as found:
        yield found


def test_ranges_of_a_program_that_nobody_has_changed(daemon: RunningDaemon) -> None:
    environ = {key: value for key, value in daemon.environ.items() if key != "NVTX_INJECTION64_PATH"}
    job = subprocess.Popen(
        [*PROFCTL, "run", "--", sys.executable, "-c", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environ,
    )
    try:
        assert job.stdout is not None
        ready, library = job.stdout.readline().split()
        assert (ready, Path(library).name) == ("ready", "libprofd_nvtx.so")
        until(lambda: "sdk" in sources(daemon, job.pid), "the program is attached")
        for _ in range(2):  # the second time its domains and texts are known already
            [target] = Captures(daemon).record(job.pid).targets
            assert target.state == pb.STATE_STORED, target.message
            _check(daemon, target.trace)
        assert job.poll() is None
    finally:
        job.kill()
        job.communicate()


def _check(daemon: RunningDaemon, trace: str) -> None:
    rows = sql(
        daemon,
        trace,
        """select e.name, e.kind, p.name, count(*) > 5 from events e left join events p on e.parent = p.row
           where e.name in ('before', 'load', 'read', 'seen') and (p.name is not null or e.name = 'load')
           group by all order by 1""",
    )
    assert rows == [
        ["load", "user_annotation", None, True],
        ["read", "user_annotation", "load", True],
        ["seen", "instant", "read", True],
    ]
    args = sql(
        daemon, trace, "select distinct name, key, args.value from events join args using (row) where name = 'load'"
    )
    assert sorted(args) == [["load", "domain", "data"], ["load", "payload", "64"]]


def test_the_library_of_another_tool_stays(daemon: RunningDaemon) -> None:
    program = "import os; print(os.environ['NVTX_INJECTION64_PATH'])"
    done = subprocess.run(
        [*PROFCTL, "run", "--", sys.executable, "-c", program],
        env={**os.environ, **daemon.environ, "NVTX_INJECTION64_PATH": "/opt/nsight/nvtx.so"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "/opt/nsight/nvtx.so\n"
