"""Real packages: small programs of each that check themselves, plain and under captures."""

from __future__ import annotations

import random
import subprocess
from typing import Final

from kindness import place, pythons
from kindness.cases import Case, judge_all
from kindness.daemons import daemons
from kindness.ledger import Ledger, Skipped

NAME: Final = "packages"
PIP: Final = ("greenlet", "gevent", "trio", "uvloop", "tornado", "joblib", "gunicorn", "flask")
CASES: Final = (
    Case("greenlet", "packages/greenlets.py", ("1000",)),
    Case("gevent", "packages/gevents.py", ("200",)),
    Case("trio", "packages/trios.py", ("1500",)),
    Case("uvloop", "packages/uvloops.py", ("600",)),
    Case("tornado", "packages/tornados.py", ("1000",)),
    Case("joblib", "packages/joblibs.py", ("100",)),
    Case("gunicorn and flask", "packages/gunicorns.py", ("500",)),
    Case("DataLoader, fork", "packages/loaders.py", ("20", "fork")),
    Case("DataLoader, spawn", "packages/loaders.py", ("3", "spawn")),
    Case("DataLoader, forkserver", "packages/loaders.py", ("3", "forkserver")),
    Case("torch.multiprocessing", "packages/torch_mp.py", ("100",)),
    Case("DistributedDataParallel", "packages/ddp.py", ("100",), quiet=r"^\[W|gloo|Gloo"),
    Case("torch.compile", "packages/compiled.py", ("100",), quiet=r"^W\d|^\[W"),
)
JAX: Final = Case("JAX", "packages/jaxes.py", ("100",))


def run(ledger: Ledger, deadline: float, seed: int, name: str = NAME) -> None:
    """Each package once, however long that takes; those that cannot be installed are skipped."""
    chance = random.Random(seed)
    with daemons() as found:
        try:
            judge_all(ledger, NAME, pythons.layered(NAME, PIP), found, chance, CASES)
        except subprocess.CalledProcessError as error:
            ledger.add(Skipped(NAME, "all", f"the packages cannot be installed: {error}"))
        jax = place.ROOT / ".venv-jax"
        if (jax / ".installed").exists():
            judge_all(ledger, NAME, pythons.layered("jax", (), jax), found, chance, (JAX,))
        else:
            ledger.add(Skipped(NAME, JAX.name, "there is no .venv-jax: make .venv-jax/.installed"))
