"""Who is killed, and when: at random moments, from a seed."""

from __future__ import annotations

import random
import time
from typing import Final

from soak import victims
from soak.rig import Rig

SHARES: Final = {"daemon": 25, "worker": 20, "streamer": 18, "porter": 6, "sampler": 11, "target": 12, "sender": 8}
_BETWEEN_SECONDS: Final = (0.05, 0.2, 0.5, 1.0)
_AWAY_SECONDS: Final = (0.0, 0.0, 0.0, 0.5, 2.0)
_ABSENT_SECONDS: Final = 1.0  # until another victim is looked for


class Killer:
    """Kills until a round's quota is used up."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._chance = rig.chance_of("killer")

    def run(self) -> None:
        """Until the round is over."""
        while self._rig.going_on:
            time.sleep(self._chance.choice(_BETWEEN_SECONDS) * self._chance.random() * 2)
            [victim] = self._chance.choices([*SHARES], [*SHARES.values()])
            if self._kill(victim):
                self._rig.kill_counted(victim)

    def _kill(self, victim: str) -> bool:
        if victim == "daemon":
            self._rig.kill_daemon(self._chance.choice(_AWAY_SECONDS))
            return True
        deadline = time.monotonic() + _ABSENT_SECONDS
        while time.monotonic() < deadline:
            if victim in ("target", "sender"):
                if self._kill_job(self._chance, "push" if victim == "sender" else ""):
                    return True
            else:
                there = victims.having(self._rig.found.running.process.pid, victim)
                if there and victims.killed(self._chance.choice(there), victim):
                    return True
            time.sleep(0.01)
        return False

    def _kill_job(self, chance: random.Random, program: str) -> bool:
        with self._rig.lock:
            there = [job for job in self._rig.jobs.values() if (job.program == "push") == bool(program)]
            there = [job for job in there if job.popen.returncode is None and job.ready()]
            if not there:
                return False
            job = chance.choice(there)
            self._rig.killed.add(job.pid)  # first: its lane looks at it all the time
            if not job.kill():  # its lane has just reaped it, and is about to forget it
                self._rig.killed.discard(job.pid)
                return False
        return True
