"""Real jobs of four ranks over gloo that come to a stand, each in its own way, and one that goes on.

`python -m tests.corpus.answers.hanging_jobs [KIND...] [--runs N]` counts how many of N of each `where` explains.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from tests.corpus.answers import labels

RANKS: Final = 4
ODD: Final = 2  # the rank with the plant
CALLS: Final = 20
HOLD_SECONDS: Final = 600.0
HEALTHY_SECONDS: Final = 0.05  # of a step
KINDS: Final = tuple(labels("hanging"))


@contextlib.contextmanager
def standing(kind: str, environ: dict[str, str]) -> Iterator[list[subprocess.Popen[str]]]:
    """A job's ranks, which have attached and begun to call collectives. `environ`: has the daemon's address."""
    with tempfile.TemporaryDirectory(prefix="pd-") as folder:
        ranks = []
        try:
            for rank in range(RANKS):
                labels = {"RANK": str(rank), "WORLD_SIZE": str(RANKS), "SLURM_JOB_ID": f"{kind}{os.getpid()}"}
                command = [sys.executable, "-m", "tests.corpus.answers.hanging_jobs", "rank", kind, folder]
                env = {**environ, **labels, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
                pipe = subprocess.PIPE
                ranks.append(subprocess.Popen(command, env=env, stdout=pipe, stderr=subprocess.DEVNULL, text=True))
            for process in ranks:
                assert process.stdout is not None
                assert process.stdout.readline() == "calls\n", "a rank has ended"
            yield ranks
        finally:
            for process in ranks:
                process.kill()
                process.communicate()


def where(ranks: list[subprocess.Popen[str]], environ: dict[str, str]) -> dict[str, Any]:
    """What `profctl where` says of the collectives of the ranks that are left."""
    pids = [f"--pid={process.pid}" for process in ranks if process.poll() is None]
    command = [str(Path(sys.executable).with_name("profctl")), "where", "--json", *pids]
    done = subprocess.run(command, env=environ, capture_output=True, text=True)
    assert done.returncode in (0, 6), done.stderr  # one may have ended meanwhile
    found = [process["collectives"] for process in json.loads(done.stdout) if process["collectives"]]
    return found[0] if found else {"state": "unknown", "sentences": ["nothing"], "missing": [], "waits_at": None}


def settled(ranks: list[subprocess.Popen[str]], environ: dict[str, str], seconds: float = 30.0) -> dict[str, Any]:
    """The first word of a trouble, or the last one when nobody says any for so long."""
    end = time.monotonic() + seconds
    while True:
        said = where(ranks, environ)
        if said["state"] in ("hang", "mismatch") or time.monotonic() > end:
            return said


def right(kind: str, said: dict[str, Any]) -> bool:
    """Rank, group, sequence and line are the planted ones."""
    names = [each["name"] for each in said["missing"]]
    places = {place["line"] for place in (said["waits_at"], *(each["at"] for each in said["missing"])) if place}
    text = " ".join(said["sentences"])
    if said["state"] not in labels("hanging")[kind].says:
        return False
    if kind == "healthy":
        return True
    if kind == "groups":
        circle = {"rank 0", "rank 1"} == {*names, *said["waiting"]}
        return circle and said["sequence"] == 1 and bool(places & _lines(cross))
    if kind == "size":
        at = any(f":{line})" in text for line in _lines(hold) | _lines(sizes))
        return said["sequence"] == CALLS + 1 and "rank 2 came with 200" in text and at
    last = CALLS if kind == "skipped" else CALLS + 1
    found = names == ["rank 2"] and said["group"] == "default_pg"
    return found and said["sequence"] == last and bool(places & (_lines(elsewhere) | _lines(go_on)))


def _lines(function: Callable[..., object]) -> set[int]:
    lines, first = inspect.getsourcelines(function)
    return set(range(first, first + len(lines)))


# --- the program of a rank ---


def elsewhere() -> None:
    """Does something without collectives."""
    time.sleep(HOLD_SECONDS)


def hold() -> None:
    """As programs do that wait for a decision after an error."""
    time.sleep(HOLD_SECONDS)


def go_on(dist: Any, ones: Any) -> None:
    """A further call."""
    dist.all_reduce(ones)


def sizes(dist: Any, torch: Any, rank: int) -> None:
    """More than the others have: a neighbour is killed by gloo."""
    dist.all_reduce(torch.ones(200 if rank == ODD else 100))


def cross(dist: Any, ones: Any, groups: list[Any], rank: int) -> None:
    """Two ranks, two groups of them, two orders."""
    for group in groups if rank == 0 else reversed(groups):
        dist.all_reduce(ones, group=group)


def _rank(kind: str, folder: str) -> None:
    import profclient
    import torch
    import torch.distributed as dist

    profclient.attach()
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo", init_method=f"file://{folder}/met", rank=rank, world_size=RANKS)
    groups = [dist.new_group([0, 1]), dist.new_group([0, 1])]
    ones = torch.ones(16)
    for call in range(CALLS):
        if not (kind == "skipped" and rank == ODD and call == CALLS // 2):
            if call == CALLS - 1:
                print("calls", flush=True)
            dist.all_reduce(ones)
    if rank == ODD and kind == "skipped":
        print("calls", flush=True)
        elsewhere()
    while kind == "healthy":
        time.sleep(HEALTHY_SECONDS)
        go_on(dist, ones)
    try:
        if kind == "size":
            sizes(dist, torch, rank)
        elif kind == "groups" and rank in (0, 1):
            cross(dist, ones, groups, rank)
        elif kind == "exit" and rank == ODD:
            os._exit(0)
        go_on(dist, ones)
    except RuntimeError:
        hold()


def _count(kinds: list[str], runs: int) -> None:
    from tests.support.daemon import running_daemon

    with running_daemon() as daemon:
        for kind in kinds:
            found = 0
            for _ in range(runs):
                with standing(kind, daemon.environ) as ranks:
                    said = settled(ranks, daemon.environ, 4.0 if kind == "healthy" else 30.0)
                found += right(kind, said)
                if not right(kind, said):
                    print(kind, json.dumps(said))
            print(f"{kind}: {found} of {runs}; {' '.join(said['sentences'])}", flush=True)


def main() -> None:
    """A rank of a job, or the count."""
    if sys.argv[1:2] == ["rank"]:
        _rank(*sys.argv[2:4])
        return
    runs = int(sys.argv[sys.argv.index("--runs") + 1]) if "--runs" in sys.argv else 1
    _count([kind for kind in sys.argv[1:] if kind in KINDS] or list(KINDS), runs)


if __name__ == "__main__":
    main()
