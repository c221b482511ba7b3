"""CPython's own test suites of what we get near to, plain and under captures: the same tests pass.

A difference is looked at again, up to three times on each side: tests that come out both ways without us are not
stable, and prove nothing. What remains and has no reason in `kindness/suites.py` is harm.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final

from kindness import jobs, place, pythons, suites
from kindness.daemons import Daemons, daemons
from kindness.ledger import Job, Ledger, Skipped, Tally
from kindness.trial import alone, under_captures

_MODULE_SECONDS: Final = 1800.0
_AGAIN: Final = 3


def run(ledger: Ledger, deadline: float, seed: int, name: str) -> None:
    """One module after the other, those first that ran least often on these sources, each at most once."""
    version = name.removeprefix("cpython-")
    python = pythons.with_profd(version)
    if python is None:
        ledger.add(Skipped(name, "all", f"CPython {version} is not installed"))
        return
    chance = random.Random(seed)
    done = Counter[str]()
    for row in ledger.rows(place.digest()):
        if row["shard"] == name and row["kind"] in {"job", "earlier"}:
            done[row["program"]] += row.get("jobs", 1)
    with daemons() as found:
        for module in sorted(suites.modules(version), key=done.__getitem__):
            if time.monotonic() > deadline:
                return
            _Trial(ledger, name, version, python, found, chance).judge(module)


class _Trial:
    def __init__(
        self, ledger: Ledger, shard: str, version: str, python: Path, found: Daemons, chance: random.Random
    ) -> None:
        self._ledger, self._shard, self._version, self._python = ledger, shard, version, python
        self._found, self._chance = found, chance
        self._tally = Tally(ledger, shard)

    def judge(self, module: str) -> None:
        """Plain, then under captures; what differs, again."""
        plain = self._plain(module)
        if not plain:
            self._ledger.add(Skipped(self._shard, module, "CPython has no such tests here, or they do not run plain"))
            return
        captured, job = self._run(module, captured=True)
        differences = suites.unexplained(self._version, suites.differing(plain, captured))
        for _ in range(_AGAIN):
            if not differences:
                break
            plain_again, _ = self._run(module, captured=False)
            captured, job = self._run(module, captured=True)
            again = suites.differing(plain_again, captured)
            # Unstable without us, or the same this time: no difference of ours.
            differences = {test: how for test, how in differences.items() if again.get(test) == how}
        said = "; ".join(f"{test}: {how}" for test, how in differences.items())
        if said and not captured:
            said = f"no results at all: it ended with {job.popen.returncode}"
        self._ledger.add(Job(self._shard, module, said[:2000], str(job.log)))
        if not said:
            job.forget()
        print(f"  {module}: {said or f'{len(plain)} tests as without us'}", flush=True)

    def _plain(self, module: str) -> suites.Results:
        path = self._ledger.folder / "plain" / self._python_name() / f"{module}.json"
        found = suites.kept(path)
        if found is None:
            found, _ = self._run(module, captured=False)
            suites.keep(path, found)
        return found

    def _python_name(self) -> str:
        return Path(pythons.installed(self._version) or self._version).parents[1].name

    def _run(self, module: str, *, captured: bool) -> tuple[suites.Results, jobs.Job]:
        with tempfile.TemporaryDirectory(prefix="kc-", dir="/tmp") as folder:
            xml = Path(folder) / "results.xml"
            command: list[str | Path] = [
                self._python,
                "-m",
                "test",
                "-v",
                "--junit-xml",
                xml,
                "--tempdir",
                folder,
                module,
            ]
            environment = self._found.environment(TMPDIR=folder)
            del environment["PYTHONFAULTHANDLER"]  # tests look at it
            started = jobs.start(
                module,
                jobs.attached(command) if captured else command,
                self._ledger.logs(self._shard),
                environment,
                seconds=_MODULE_SECONDS,
            )
            if captured:
                under_captures(self._found, started, self._tally, self._chance)
            else:
                alone(started)
                started.forget()
            return suites.read(xml), started
