"""One command and 512 hosts: Enter until all are armed beside the bare relays, and what both keep in memory.

The relays are real processes, one for each host, started by the same command lines; the daemons are played
(`bench/played_hosts.py`). `--events` has no meaning here.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from asyncio.subprocess import PIPE
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from profclient.fleet.way import FANOUT, Way
from profclient.relay.lines import VERSION, Writer

from bench.measure import ROOT, Row
from bench.played_hosts import RANKS

HOSTS = 512
PLAYERS = 2  # processes
ROUNDS = 3
ARMED_BAR, MEMORY_BAR_MB, RELAYS_BAR_GB = 1.5, 200, 12
WINDOW_SECONDS = 1
PROFCTL = (sys.executable, "-c", "from profclient.cli import main; main()")
NAMES = [f"h{number:03}" for number in range(HOSTS)]


@dataclass(frozen=True, slots=True)
class Fanout:
    """Of one `profctl start`."""

    armed_seconds: float  # from its start until the last host's daemon armed
    peak_bytes: int  # of profctl


def rows(events: int) -> Iterator[Row]:
    """The rows of this case."""
    del events
    with _played() as via:
        pairs = [(_bare(via), _profctl(via)) for _ in range(ROUNDS)]
        relays = _relays(via)
    ratios = sorted(ours.armed_seconds / bare for bare, ours in pairs)
    ratio = statistics.median(ratios)
    what = f"{HOSTS} hosts of {RANKS} ranks"
    yield Row(
        "hosts",
        f"{what}: Enter until all are armed, {ROUNDS} pairs",
        f"{statistics.median(ours.armed_seconds for _, ours in pairs):.1f} s",
        floor=f"{statistics.median(bare for bare, _ in pairs):.1f} s, the bare relays, {FANOUT} at once",
        ratio=ratio,
        bar=f"<= {ARMED_BAR}x",
        met=ratio <= ARMED_BAR,
        note=f"ratios {ratios[0]:.2f} to {ratios[-1]:.2f}",
    )
    peak = max(ours.peak_bytes for _, ours in pairs) / 1e6
    yield Row(
        "hosts", f"{what}: memory of profctl", f"{peak:.0f} MB", bar=f"<= {MEMORY_BAR_MB} MB", met=peak <= MEMORY_BAR_MB
    )
    yield Row(
        "hosts",
        f"{what}: memory of all relays (PSS)",
        f"{relays / 1e9:.1f} GB",
        bar=f"<= {RELAYS_BAR_GB} GB",
        met=relays / 1e9 <= RELAYS_BAR_GB,
    )


@contextmanager
def _played() -> Iterator[str]:
    """The --via that leads to the hosts."""
    with tempfile.TemporaryDirectory(prefix="pf-", dir="/tmp") as folder:
        players = [
            subprocess.Popen(
                [sys.executable, "-m", "bench.played_hosts", folder, *NAMES[number::PLAYERS]],
                cwd=ROOT,
                stdout=subprocess.PIPE,
            )
            for number in range(PLAYERS)
        ]
        try:
            for player in players:
                assert player.stdout is not None
                player.stdout.readline()
            yield f"env PROFD_ADDRESS=unix:{folder}/{{host}}/profd.sock"
        finally:
            for player in players:
                player.kill()
                player.communicate()


def _folder(via: str) -> str:
    """Of the hosts that this leads to."""
    return via.partition("unix:")[2].partition("/{host}")[0]


def _start(via: str, out: int = subprocess.PIPE) -> subprocess.Popen[bytes]:
    words = ("start", "--hosts", f"h[000-{HOSTS - 1:03}]", "--via", via, "--job", "7", "--all", "--json")
    home = _folder(via)
    environ = {**os.environ, "XDG_STATE_HOME": home, "XDG_CACHE_HOME": home}
    return subprocess.Popen([*PROFCTL, *words, "--duration", f"{WINDOW_SECONDS}s"], env=environ, stdout=out)


def _profctl(via: str) -> Fanout:
    began_ns = time.time_ns()
    with _start(via) as process:
        assert process.stdout is not None
        answer = json.loads(process.stdout.read())
        _, _, used = os.wait4(process.pid, 0)
    if answer["state"] != "stored":
        raise RuntimeError(f"{answer}"[:2000])
    armed_ns = max(host["capture"]["created_ns"] for host in answer["hosts"])
    return Fanout((armed_ns - began_ns) / 1e9, used.ru_maxrss << 10)


def _bare(via: str) -> float:
    """Seconds until all relays have greeted, which are started as `profctl` starts them."""
    way = Way(tuple(NAMES), via)

    async def greeted(host: str, turns: asyncio.Semaphore) -> asyncio.subprocess.Process:
        async with turns:
            relay = await asyncio.create_subprocess_exec(*way.command(host), stdin=PIPE, stdout=PIPE)
            assert relay.stdin is not None
            assert relay.stdout is not None
            relay.stdin.write(Writer().line("hello", 0, json.dumps({"version": VERSION}).encode()))
            await relay.stdout.readline()
            return relay

    async def all_of_them() -> float:
        began, turns = time.monotonic(), asyncio.Semaphore(FANOUT)
        relays = await asyncio.gather(*(greeted(host, turns) for host in NAMES))
        took = time.monotonic() - began
        for relay in relays:
            relay.kill()
            await relay.wait()
        return took

    return asyncio.run(all_of_them())


def _relays(via: str) -> int:
    """Bytes (PSS) of the relays together while one capture records, in a run that nobody times."""
    mark = _folder(via).encode()
    most = 0
    with _start(via, subprocess.DEVNULL) as process:
        while process.poll() is None:
            found = [_pss(entry) for entry in Path("/proc").glob("[0-9]*") if _is_relay(entry, mark)]
            most = max(most, sum(found))
            time.sleep(0.2)
    return most


def _is_relay(entry: Path, mark: bytes) -> bool:
    try:
        return b"profclient.relay" in (entry / "cmdline").read_bytes() and mark in (entry / "environ").read_bytes()
    except OSError:
        return False


def _pss(entry: Path) -> int:
    try:
        lines = (entry / "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:")), 0)
