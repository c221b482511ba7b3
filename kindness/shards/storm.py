"""Small programs of every kind, captured at random: short windows, stops, clients and daemons that are killed."""

from __future__ import annotations

import importlib.util
import os
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from kindness import observer, pythons
from kindness.catalog import PROGRAMS, Program
from kindness.daemons import daemons, killing
from kindness.ledger import Kills, Ledger, Skipped, Usage
from kindness.storming import NAME, Storm, asker, hurry, killed_clients, slot

_SLOTS: Final = 8
_ASKERS: Final = 12
_SECONDS: Final = (30.0, 120.0)  # of a job
_KILLS: Final = (30, 45)  # captures that recorded between two


def run(ledger: Ledger, deadline: float, seed: int, name: str = NAME) -> None:
    """Until `deadline` (of time.monotonic()), and until the jobs that run then have ended."""
    programs: Sequence[Program] = PROGRAMS
    if importlib.util.find_spec("torch") is None:
        programs = [program for program in PROGRAMS if not program.torch]
        ledger.add(Skipped(NAME, "torch", "torch is not installed"))
    for version in pythons.VERSIONS:
        pythons.with_profd(version)
    hurry()
    storm(ledger, deadline, random.Random(seed), programs)


def storm(
    ledger: Ledger,
    deadline: float,
    chance: random.Random,
    programs: Sequence[Program],
    *,
    seconds: tuple[float, float] = _SECONDS,
    shard: str = NAME,
) -> Storm:
    """One storm over these programs; what it saw."""
    begin = time.monotonic()
    with daemons() as found:
        built = observer.directory() if any(program.torch for program in programs) else None
        rig = Storm(found, ledger, built, shard)
        sides: list[tuple[Callable[..., None], tuple[Any, ...]]] = [
            *((slot, (rig, programs, random.Random(chance.random()), seconds)) for _ in range(_SLOTS)),
            *((asker, (rig, random.Random(chance.random()))) for _ in range(_ASKERS)),
            (killed_clients, (rig, random.Random(chance.random()))),
        ]
        threads = [threading.Thread(target=target, args=arguments) for target, arguments in sides]
        for thread in threads:
            thread.start()
        killer = killing(
            found, chance, _KILLS, lambda: rig.tally.recorded, rig.over, lambda: ledger.add(Kills(shard, 1))
        )
        try:
            while time.monotonic() < deadline:
                time.sleep(max(0.0, min(10.0, deadline - time.monotonic())))
                with rig.lock:
                    rig.tally.flush()
        finally:
            rig.over.set()
            for thread in (*threads, killer):
                thread.join()
            rig.tally.flush()
        ledger.add(Usage(shard, rig.cpu_seconds, (time.monotonic() - begin) * (os.cpu_count() or 1)))
    return rig
