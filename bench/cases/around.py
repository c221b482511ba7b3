"""What the preparation of a capture of many hosts, and the gathering of its traces, cost a job of four ranks over gloo.

Steps while one of the two is done over and over, and while none is, turn about. The job waits for most of its step, as
one whose work is on a device does. The relay and the daemon take turns with it on the same cores; `profctl` runs where
it keeps nobody waiting (SCHED_IDLE), for it is elsewhere else: and so does, while none is, a process that takes as much
CPU time, for what that costs steps is none of ours. As root, who may take the relay out of that again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from bench import pairing
from bench.live import BIN, Live, hear, profd, say, wait_until
from bench.measure import Row

RANKS = 4
JOB = "4711"
ROUNDS = 8
BLOCK_SECONDS = 5.0
STEPS_BAR = 1.01
PREPARED, GATHERED = "prepare", "gather"
RELAY_SECONDS = 0.04  # of CPU time: with a bare Python
SPIN = "import sys, time\nwhile time.process_time() < float(sys.argv[1]): pass"
RATE_PAUSE_SECONDS = 0.5  # between two commands: what one user may ask has a rate

LOOP = """
import os, sys, time
import torch, torch.distributed as dist
import profclient
profclient.attach()
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="file://" + os.environ["BENCH_STORE"],
                        rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
weight, going = torch.ones(64, 64), torch.ones(1)
def step(on):
    with profclient.record_function("step"):
        for _ in range(20):
            torch.mm(weight, weight)
        going.fill_(on)
        dist.all_reduce(going)
        time.sleep(0.015)
    return bool(going > 0)
for line in sys.stdin:
    end, steps, begin = time.perf_counter() + float(line), 0, time.perf_counter()
    while step(float(time.perf_counter() < end and os.environ["RANK"] == "0")):
        steps += 1
    print((time.perf_counter() - begin) * 1e9 / steps, flush=True)
"""


def rows(events: int) -> Iterator[Row]:
    """The rows of this case."""
    del events
    if os.geteuid() or shutil.which("chrt") is None:
        yield Row("around", "a job beside a capture's preparation", "not measured: root and chrt are needed")
        return
    taken: list[pairing.Round] = []
    with profd() as live, tempfile.TemporaryDirectory(prefix="pb-") as name:
        jobs = [_rank(live, rank, Path(name)) for rank in range(RANKS)]
        _steps(jobs, 2.0)
        wait_until("the ranks attach", lambda: {job.pid for job in jobs} <= live.attached())
        fleet = _recorded(live, jobs)
        commands = _commands(live, fleet, Path(name))
        ways = [*commands]
        for number in range(ROUNDS):
            turn = ways[number % 3 :] + ways[: number % 3]
            taken.append({way: _block(live, jobs, commands[way]) for way in turn})
    for way, what in ((PREPARED, "is prepared"), (GATHERED, "is gathered")):
        words = f"steps of {RANKS} ranks over gloo while a capture {what} all the time, while none is, {ROUNDS} rounds"
        yield pairing.steps_row("around", words, taken, way, STEPS_BAR)


def _rank(live: Live, rank: int, folder: Path) -> subprocess.Popen[str]:
    own = {
        "RANK": str(rank),
        "WORLD_SIZE": str(RANKS),
        "SLURM_JOB_ID": JOB,
        "BENCH_STORE": str(folder / "store"),
        "GLOO_SOCKET_IFNAME": "lo",
    }
    return replace(live, environment={**live.environment, **own}).job(LOOP, enabled=False)


def _steps(jobs: list[subprocess.Popen[str]], seconds: float) -> float:
    """Mean ns of a step."""
    for job in jobs:
        say(job, str(seconds))
    return max(map(hear, jobs))


def _hosts(live: Live) -> tuple[str, ...]:
    address = f"PROFD_ADDRESS={live.environment['PROFD_ADDRESS']}"
    return "--hosts", "n1", "--via", f"chrt --other 0 env {address} HOST_OF_BENCH={{host}}"


def _commands(live: Live, fleet: str, folder: Path) -> dict[str, list[str]]:
    """By way. Without either a process takes as much CPU time as `profctl` itself does."""
    profctl, hosts = str(BIN / "profctl"), [*_hosts(live), "--json"]
    collect = [profctl, "collect", fleet, *hosts, "--to", f"{folder}/to"]
    ways = {
        PREPARED: [profctl, "start", *hosts, "--job", JOB, "--duration", "1s", "--dry-run"],
        GATHERED: ["sh", "-c", f'"$@" && rm -r {folder}/to', "sh", *collect],
    }
    own = min(_idle(command, live.environment) for command in ways.values()) - RELAY_SECONDS
    return {pairing.WITHOUT: [sys.executable, "-S", "-E", "-c", SPIN, f"{own:.3f}"], **ways}


def _idle(command: list[str], environment: Mapping[str, str]) -> float:
    """Run it where nobody else wants to; seconds of CPU time that it took, its children's with it."""
    process = subprocess.Popen(["chrt", "--idle", "0", *command], env=environment, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return used.ru_utime + used.ru_stime


def _recorded(live: Live, jobs: list[subprocess.Popen[str]]) -> str:
    """A capture of some seconds of all ranks; its id."""
    with ThreadPoolExecutor(1) as beside:
        words = ("start", *_hosts(live), "--job", JOB, "--duration", f"{BLOCK_SECONDS:g}s")
        asked = beside.submit(live.profctl, *words)
        while not asked.done():
            _steps(jobs, 1.0)
    answer = asked.result()
    if answer["state"] != "stored":
        raise RuntimeError(f"{answer}"[:2000])
    return str(answer["capture"])


def _block(live: Live, jobs: list[subprocess.Popen[str]], command: list[str]) -> float:
    """Mean ns of a step while the command is run over and over."""
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            _idle(command, live.environment)
            over.wait(RATE_PAUSE_SECONDS)

    with ThreadPoolExecutor(1) as beside:
        working = beside.submit(work)
        try:
            return _steps(jobs, BLOCK_SECONDS)
        finally:
            over.set()
            working.result()
