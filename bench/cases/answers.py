"""How often answers about ranks are right: on seeded jobs whose truth is known, and on real ones over gloo.

`PROFD_BENCH_ANSWERS_JOBS` real jobs of each kind (0: none), of 2 and 4 ranks in turn.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from profd.answers.ranks.ranks import ranks_of_capture
from profd.query.captured import Captured

from bench.measure import Row
from tests.support import gloo_jobs
from tests.support.importing import import_trace
from tests.support.ranks_accuracy import blame, gloo_clocks, matching, nccl_clocks

PAIRS, JOBS = 300, 100
REAL = int(os.environ.get("PROFD_BENCH_ANSWERS_JOBS", "5"))
RANKS = (2, 4, 8)
PLANTS = ("5 ms in each 10th", "5 % always")


def rows(events: int) -> Iterator[Row]:
    """Seeded jobs first: they take half a minute."""
    yield from _seeded()
    if REAL:
        yield from _real()


def _row(what: str, ours: str, bar: str, met: bool, note: str = "") -> Row:
    return Row("answers", what, ours, bar=bar, met=met, note=note)


def _seeded() -> Iterator[Row]:
    cut = matching(PAIRS)
    told = f"{cut.right} right, {cut.wrong} wrong, {cut.refused} refused of {PAIRS}"
    yield _row("cut windows of two ranks matched", told, "300 right, 2 % refused", cut.right >= 294 and not cut.wrong)
    gloo = gloo_clocks(PAIRS)
    told = (
        f"{gloo.median / 1000:.0f} us median, {gloo.worst / 1000:.0f} us worst, truth within the bound in {gloo.within}"
    )
    yield _row("clocks, gloo-like", told, "64 us, always within", gloo.median <= 64_000 and gloo.within == PAIRS)
    nccl = nccl_clocks(PAIRS)
    told = f"{nccl.median / 1000:.1f} us median, {nccl.worst / 1000:.1f} us worst"
    yield _row("clocks, NCCL-like, 50 ppm", told, "4 us, 20 us", nccl.median <= 4000 and nccl.worst <= 20_000)
    yield from _stragglers()


def _stragglers() -> Iterator[Row]:
    for noisy in (False, True):
        found = [blame(JOBS, ranks, noisy=noisy).wrong for ranks in RANKS]
        what = f"alarms without a plant, {'noisy' if noisy else 'quiet'}"
        yield _row(f"{what}, {RANKS} ranks", f"{found} of {JOBS}", "2", max(found) <= 2)
    for noisy in (False, True):
        for plant in PLANTS:
            seen = [blame(JOBS, ranks, noisy=noisy, plant=plant, queued=noisy) for ranks in RANKS]
            told = f"{[one.found for one in seen]} of {JOBS}; another rank {[one.wrong for one in seen]}"
            least = 80 if noisy else 99
            met = min(one.found for one in seen) >= least and max(one.wrong for one in seen) <= 1
            note = "the best test that alarms in 1 % finds 47, 60, 61 of 100" if noisy and "always" in plant else ""
            yield _row(f"{plant}, {'noisy' if noisy else 'quiet'}, {RANKS} ranks", told, f"{least}; 1", met, note)


def _real() -> Iterator[Row]:
    for kind, word in gloo_jobs.PLANTS.items():
        answers = [_asked(kind, 2 + 2 * (job % 2)) for job in range(REAL)]
        named = [[one["rank"] for one in answer["stragglers"]] for answer in answers]
        if not word:
            alarms = sum(map(bool, named))
            counted = sum(_blames_a_call(answer) for answer in answers)
            told = f"{alarms} alarms, {counted} of them by counts of calls, in {REAL} jobs"
            yield _row("gloo, clean", told, "0 by counts", counted == 0, f"named: {named}")
            continue
        right = sum(_first(answer) and word in _cause(answer) for answer in answers)
        told = f"{right} of {REAL}: the rank, and {word} as its cause"
        yield _row(f"gloo, {kind}", told, "95 %", right >= 0.95 * REAL, f"causes: {[_cause(one) for one in answers]}")


def _asked(kind: str, ranks: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        stored = []
        for rank, file in enumerate(gloo_jobs.run(Path(folder), kind, ranks)):
            stored.append(Path(folder) / f"stored{rank}")
            import_trace(file, stored[-1], trace=f"t{rank}", capture="c0123456789ab")
        return ranks_of_capture(Captured(stored))


def _first(answer: dict[str, Any]) -> bool:
    return bool(answer["stragglers"]) and answer["stragglers"][0]["rank"] == gloo_jobs.LATE


def _cause(answer: dict[str, Any]) -> str:
    cause = answer["stragglers"][0]["cause"] if answer["stragglers"] else None
    return str(cause["name"] or cause["sentence"]) if cause else "none"


def _blames_a_call(answer: dict[str, Any]) -> bool:
    return any(one["cause"] and "times in" in one["cause"]["sentence"] for one in answer["stragglers"])
