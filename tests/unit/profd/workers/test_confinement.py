"""What a worker that has been taken over can do: tried from inside, in every mode, against the table of the docs."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from profd.errors import JobFailed
from profd.kernel.identity import WorkerIdentity
from profd.limits import WORKER_CALLS_ASKED_MAX
from profd.workers import calls, confine, landlock, unknown_calls
from profd.workers.pool import WorkerPool

from tests.support import readable
from tests.support.attacks import CALL_NUMBERS, JOBS, UNFILTERED

ROOT = Path(__file__).parents[4]
HEADERS = ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h")
CLOSED = {"root": "65534", "user": "65534", "user as root": "0"}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(landlock.abi() < 6, reason="the table is that of a kernel with Landlock's ABI 6"),
]


def ways() -> list[str]:
    if os.geteuid() != 0:
        return ["own user"]
    return ["user as root", *([] if readable.why_not() else ["root", "user"])]


@pytest.fixture(scope="module", params=ways())
def found(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What the probe found, with its mode."""
    mode: str = request.param
    words = [sys.executable, "-m", "tests.support.worker_probe", mode]
    if mode in ("root", "user"):
        words = readable.command(*words)
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    return {**json.loads(done.stdout), "mode": mode}


def table() -> dict[str, str]:
    """The rows of docs/security.md."""
    text = (ROOT / "docs/security.md").read_text()
    rows = text.partition("| a worker that tries to | gets |\n|---|---|\n")[2].partition("\n\n")[0]
    return dict(row.strip("| ").rsplit(" | ", 1) for row in rows.splitlines())


def test_the_table_of_the_docs_is_what_happens(found: dict[str, Any]) -> None:
    assert found["tries"] == table()


def test_no_other_call_is_made(found: dict[str, Any]) -> None:
    assert set(found["numbers"].values()) == {"ENOSYS"}
    assert len(found["numbers"]) > 500


def test_the_calls_of_this_kernel_are_all_tried() -> None:
    header = next((path for path in map(Path, HEADERS) if path.exists()), None)
    if header is None or os.uname().machine != "x86_64":
        pytest.skip("no table of the kernel's calls here (linux-libc-dev)")
    known = {name: int(number) for name, number in re.findall(r"#define __NR_(\w+) (\d+)", header.read_text())}
    assert set(known.values()) <= {*CALL_NUMBERS}
    assert {number for name, number in known.items() if name in ("uretprobe", "uprobe")} <= UNFILTERED
    assert {name: known[name] for name in calls.allowed()} == calls.allowed()


def test_the_calls_of_the_docs_are_the_allowed_ones() -> None:
    text = (ROOT / "docs/security.md").read_text()
    listed = text.partition("Calls that pass:")[2].partition(".\n")[0]
    assert set(re.findall(r"`(\w+)`", listed)) == {*calls.allowed("x86_64"), *calls.allowed("aarch64")}


def test_nothing_is_held_but_its_own(found: dict[str, Any]) -> None:
    own = ["/dev/null", "/dev/null", "cgroup", "pipe", "socket", "statm"]
    assert [sorted(re.sub(r"^/proc/\d+/", "", name) for name in names) for names in found["open"]] == [own, own]


def test_no_rights_are_left(found: dict[str, Any]) -> None:
    uid = CLOSED.get(found["mode"], str(os.getuid()))
    for status in found["status"]:
        assert set(status["Uid"].split()) == {uid}
        assert (status["CapEff"], status["CapPrm"]) == ("0" * 16, "0" * 16)
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
        assert found["mode"] != "root" or status["Groups"] == ""
    assert {"files by Landlock", "system calls by allow-list"} <= {*found["held"]}


def test_others_live_and_nothing_outlives_the_pool(found: dict[str, Any]) -> None:
    assert (found["alive"], found["left"]) == ([True, True], [])


def test_a_trace_that_can_still_be_changed_is_not_taken(found: dict[str, Any]) -> None:
    if found["mode"] != "root":
        pytest.skip("workers of the same uid: Landlock keeps them from files that they let go of")
    assert "still open for writing" in found["held open"]


@pytest.fixture
async def pool(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[WorkerPool]:
    monkeypatch.setattr(unknown_calls, "_logged", set())
    pool = WorkerPool(1, known=JOBS)
    await pool.open()
    yield pool
    await pool.close()


async def test_an_unknown_call_is_logged_once_and_costs_nothing(
    pool: WorkerPool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "profd.workers"):
        for number in (1000, 4096):
            ended = await pool.run("call", {"number": number, "times": WORKER_CALLS_ASKED_MAX})
            assert ended == {"ended": "ENOSYS"}
    # The kernel has answered what came after the first so many.
    assert [getattr(record, "call", None) for record in caplog.records] == [1000]
    assert pool.statistics().workers_started == 1


async def test_late_cells_are_put_into_segments_under_confinement(tmp_path: Path) -> None:
    """With the calls, the files and the gate of a worker: it copies a segment around new cells, and renames none."""
    begin = {"ph": "X", "cat": "cpu_op", "pid": 1, "tid": 1}
    calls = [{**begin, "name": "inner", "ts": 10 * number, "dur": 4} for number in range(200)]
    (tmp_path / "trace.json").write_text(
        json.dumps({"traceEvents": [{**begin, "name": "outer", "ts": 0, "dur": 5000}, *calls]})
    )
    staging = tmp_path / "traces" / ".staging-1"
    staging.mkdir(parents=True)
    pool = WorkerPool(1, gates=tmp_path / "gates", known={"store": "tests.support.jobs:store_in_pieces"})
    held = await pool.open()
    args = {"files": [{"format": "chrome", "label": "x", "fd": 0}], "staging": str(staging), "meta": {}}
    with open(tmp_path / "trace.json", "rb") as file:
        assert (await pool.run("store", args, [file.fileno()]))["events"] == 201
    await pool.close()
    assert {confine.SYSTEM_CALLS, confine.FILES} <= {*held}
    assert sorted(path.name for path in staging.iterdir()) == [
        "meta.json",
        *(f"segment-0000{n}.parquet" for n in range(4)),
    ]
    rows = [row for path in sorted(staging.glob("segment-*")) for row in pq.read_table(path).to_pylist()]
    assert [row["self_time"] for row in rows] == [5_000_000 - 200 * 4000, *[4000] * 200]


async def test_with_uid_0_a_worker_that_cannot_be_confined_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() != 0:
        pytest.skip("workers with uid 0 take root")
    monkeypatch.setattr(confine, "FILES", "what this kernel has not")
    pool = WorkerPool(1, known=JOBS)
    with pytest.raises(
        JobFailed, match=r"uid 0 need a kernel .* what this kernel has not: run profd --user as another"
    ):
        await pool.open()
    await pool.close()


async def test_the_reason_of_a_worker_that_does_not_start_is_told(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("another uid takes root")
    tmp_path.chmod(0o700)
    nobody = WorkerIdentity(readable.NOBODY, readable.NOBODY, "nobody")
    pool = WorkerPool(1, nobody, known=JOBS, gates=tmp_path / "deep")
    with pytest.raises(JobFailed, match=r"did not start: it ended with exit code 1 \(PermissionError.*/deep/"):
        await pool.open()
    await pool.close()


BELOW_A_LISTENER = """
import asyncio, struct
from profd.workers import confine
from profd.workers.pool import WorkerPool
from tests.support.attacks import JOBS

async def main():
    pool = WorkerPool(1, known=JOBS)
    print(*await pool.open(), await pool.run("call", {"number": 1000, "times": 1}), sep=", ")
    await pool.close()

confine._prctl(38, 1)  # PR_SET_NO_NEW_PRIVS
assert confine.install(struct.pack("=HBBI", 6, 0, 0, 0x7FFF0000), 8) > 0  # everything passes, with a listener
asyncio.run(main())
"""


def test_where_another_listener_is_the_calls_end_all_the_same() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BELOW_A_LISTENER],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert "unknown calls are not logged, {'ended': 'ENOSYS'}" in done.stdout, done.stderr
