"""Traces that one user makes for others: a bundle that says millions of empty lists, a store that leads away."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.daemon.test_fair_shares import ALICE, SECONDS, everybody_lists, line
from tests.integration.daemon.test_work import chrome_json
from tests.support import people
from tests.support.bundles import bundle
from tests.support.daemon import RunningDaemon, running_daemon
from tests.support.importing import import_trace
from tests.support.long import long
from tests.unit.profd.export.exported import exported

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("hostile-bundles"),
    pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else"),
]

PROFCTL = (sys.executable, "-W", "ignore", "-c", "from profclient.cli import main; main()")
MiB = 1 << 20
FEW, MANY = 1_000_000, 12_000_000  # lists: 3 and 34 MiB of text, 64 and 800 MiB as objects

HOSTILE = """
def chunks(path):
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            yield trace_pb2.ImportChunk(data=piece)

async def main():
    async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
        traces, metadata = trace_pb2_grpc.TraceServiceStub(channel), token()
        trace = (await traces.Import(chunks(rest[0]), metadata=metadata)).trace.id
        say(trace)
        async def ended(call):
            try:
                await call
                return "OK"
            except grpc.aio.AioRpcError as error:
                return error.code().name
        pins = (traces.PinTrace(trace_pb2.PinTraceRequest(id=trace, pinned=True), metadata=metadata) for _ in range(16))
        say(json.dumps(sorted(set(await asyncio.gather(*map(ended, pins))))))
        share = trace_pb2.ShareTraceRequest(id=trace)
        getattr(share, "with").append("*")
        say(json.dumps([await ended(traces.ShareTrace(share, metadata=metadata))]))
        say(json.dumps([await ended(traces.Summary(trace_pb2.TraceRef(id=trace), metadata=metadata))]))
asyncio.run(main())
"""


def lists_in_it(folder: Path, lists: int) -> bytes:
    """A bundle of a small trace whose `options` and `top_level` have these between them."""
    (folder / "t.json").write_bytes(chrome_json(10))
    import_trace(folder / "t.json", folder / "t", title="train.py")
    with tarfile.open(fileobj=io.BytesIO(exported(folder / "t", "bundle")[1])) as archive:
        files = {one.name: archive.extractfile(one).read() for one in archive}  # type: ignore[union-attr]
    del files["MANIFEST.json"]
    some = b"[" + b",".join([b"[]"] * (lists // 2)) + b"]"
    meta = re.sub(rb'"(options|top_level)":\{[^{}]*\}', rb'"\1":{"x":@}', files.pop("meta.json"))
    assert meta.count(b"@") == 2
    return bundle({**files, "meta.json": meta.replace(b"@", some)})


def most_memory(daemon: RunningDaemon) -> int:
    """Bytes that the daemon had at worst."""
    (found,) = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{daemon.process.pid}/status").read_text())
    return int(found) * 1024


@pytest.fixture(scope="module")
def daemon() -> Iterator[RunningDaemon]:
    with running_daemon(user=False) as daemon:
        yield daemon


@pytest.mark.parametrize(
    ("lists", "most"),
    [pytest.param(FEW, 32 * MiB, id="few"), pytest.param(MANY, 300 * MiB, id="many", marks=long)],
)
def test_pins_and_summaries_of_what_says_much_of_itself(
    daemon: RunningDaemon, tmp_path: Path, lists: int, most: int
) -> None:
    path = daemon.directory / "hostile.profd"  # where Alice may read
    path.write_bytes(lists_in_it(tmp_path, lists))
    before = most_memory(daemon)
    with people.doing(ALICE, HOSTILE, daemon.directory, path) as alice:
        trace = line(alice)
        assert re.fullmatch(r"[0-9a-z]+", trace)
        for _ in ("pins", "share", "summary"):
            ends = json.loads(line(alice))
            assert ends in (["OK"], ["RESOURCE_EXHAUSTED"])
        everybody_lists(daemon)
    # THEN the daemon has made objects of nothing that the bundle says
    assert most_memory(daemon) - before < most


PREPARES = """
os.umask(0o022)
os.mkdir(rest[0] + "/state")
os.symlink(rest[1], rest[0] + "/state/traces")
say("ready")
"""


def test_a_store_whose_traces_lead_into_the_home_of_whoever_looks(daemon: RunningDaemon, tmp_path: Path) -> None:
    """WHEN another user has prepared the store THEN root's `profctl --store` says so, and the home is as it was."""
    home, theirs = tmp_path / "home", daemon.directory / "theirs"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id").write_text("secret")
    theirs.mkdir()
    os.chown(theirs, ALICE, ALICE)
    with people.doing(ALICE, PREPARES, daemon.directory, theirs, home) as alice:
        assert line(alice) == "ready"
    done = subprocess.run(
        [*PROFCTL, "--store", str(theirs / "state"), "list"],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 4, done
    assert f"belongs to uid {ALICE}, who could have led it anywhere" in " ".join(done.stderr.split())
    assert (home / ".ssh" / "id").read_text() == "secret"


def test_a_store_whose_place_another_user_can_take(daemon: RunningDaemon, tmp_path: Path) -> None:
    """Root made it in their directory: they would swap it for a link while it is looked at."""
    theirs = daemon.directory / "swapped"
    (theirs / "state" / "traces").mkdir(parents=True)
    (theirs / "link").symlink_to(tmp_path)
    (tmp_path / "traces").mkdir()
    os.chown(theirs, ALICE, ALICE)
    command = [*PROFCTL, "--store", str(theirs / "state"), "list"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 4, done
    assert f"Another user can put anything in the place of {theirs}/state, by {theirs}:" in " ".join(
        done.stderr.split()
    )
    # AND a link of theirs is followed once
    command[-2] = str(theirs / "link")
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done
