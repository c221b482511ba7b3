"""A capture of real ranks, read by other engines: the queries of docs/store.md, and our key averages."""

from __future__ import annotations

import contextlib
import json
from collections import defaultdict
from pathlib import Path

import pytest
from profd.events import DeviceType

from tests.integration.cli.conftest import Host
from tests.support.attached import READY, attached
from tests.unit.profd.segments.test_engines import ENGINES, TO_JSON, query_of, run

# Work of three kinds, one within another; each rank has a name that the others have not.
PROGRAM = f"""
import mmap, os, sys, threading, time
import profclient
profclient.attach()
{READY}
while not done.is_set():
    with profclient.record_function("forward", layer=1, note=["a", None]):
        with profclient.record_function("matmul of " + os.environ.get("RANK", "none")):
            time.sleep(0.001)
        profclient.instant("mark")
    profclient.step()
"""
RANKS = ({"RANK": "0"}, {"RANK": "1"}, {})  # the last is a process without one
NUMBERS = ("count", "cpu_time_total_ns", "self_cpu_time_total_ns")


@pytest.fixture(scope="module")
def exported(host: Host, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The directory of all its traces, as a pattern, and the capture."""
    folder = tmp_path_factory.mktemp("ranks")
    with contextlib.ExitStack() as jobs:
        ranks = [jobs.enter_context(attached(host.daemon, folder, PROGRAM, environ=environ)) for environ in RANKS]
        pids = [word for job in ranks for word in ("--pid", str(job.pid))]
        started = host.profctl("start", *pids, "--duration", "300ms", "--json")
    assert started.code == 0, started.err
    capture = started.json["capture"]
    done = host.profctl("export", capture, "-f", "parquet", "--to", str(folder / "out"))
    assert done.code == 0, done.err
    return folder / "out" / f"capture={capture}" / "*" / "*" / "*", capture


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_averages_of_all_ranks_are_ours(host: Host, exported: tuple[Path, str], engine: str) -> None:
    pattern, capture = exported
    said = run(engine, query_of(engine, pattern) + TO_JSON, pattern)
    (rows,) = [json.loads(line.removeprefix("ROWS ")) for line in said.splitlines() if line.startswith("ROWS ")]
    assert {device for _, device, *_ in rows} == {DeviceType.CPU}
    top = host.profctl("top", capture, "--raw", "--limit", "0", "--json").json["rows"]
    assert sorted((name, numbers) for name, _, *numbers in rows) == sorted(
        (row["name"], [row[number] or 0 for number in NUMBERS]) for row in top
    )
    counts: defaultdict[str, int] = defaultdict(int)
    for name, _, count, *_ in rows:
        counts[name] += count
    assert all(counts[f"matmul of {rank}"] > 10 for rank in ("0", "1", "none"))
