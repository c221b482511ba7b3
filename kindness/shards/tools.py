"""Beside other tools: profilers, tracers and a debugger do what they do, plain and under captures."""

from __future__ import annotations

import random
import subprocess
from typing import Final

from kindness import pythons
from kindness.cases import Case, judge_all
from kindness.daemons import daemons
from kindness.ledger import Ledger, Skipped

NAME: Final = "tools"
PIP: Final = ("coverage", "viztracer", "memray", "debugpy", "py-spy")
OWN: Final = (
    Case("cProfile", "tools/cprofiles.py", ("300",)),
    Case("sys.setprofile and sys.settrace", "tools/profilers.py", ("300",)),
)
CASES: Final = (
    *OWN,
    Case("coverage", "tools/coverages.py", ("300",)),
    Case("viztracer", "tools/viztracers.py", ("150",)),
    Case("py-spy", "tools/pyspies.py", ("150",)),
    Case("memray", "tools/memrays.py", ("600",)),
    Case("debugpy", "tools/debugpys.py", ("500",)),
)


def run(ledger: Ledger, deadline: float, seed: int, name: str = NAME) -> None:
    """Each tool once, however long that takes."""
    with daemons() as found:
        try:
            python = pythons.layered(NAME, PIP)
        except subprocess.CalledProcessError as error:
            ledger.add(Skipped(NAME, "all", f"the tools cannot be installed: {error}"))
            return
        judge_all(ledger, NAME, python, found, random.Random(seed), CASES)
