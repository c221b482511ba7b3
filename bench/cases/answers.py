"""How often answers about ranks are right: on seeded jobs whose truth is known, and on real ones over gloo.
Then what they cost. Each of PARTS can be run alone: `python -m bench answers:growth`.

`PROFD_BENCH_ANSWERS_JOBS` real jobs of each kind, of 2 and 4 ranks in turn.
"""

from __future__ import annotations

import functools
import os
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from profd.answers.ranks.ranks import ranks_of_capture
from profd.query.captured import Captured
from profd.workers.child import ALLOCATOR

from bench import data, measure
from bench.measure import SCRATCH, ChildFailed, Row
from bench.ours.answers import LATE
from bench.ours.without_plant import Pair, pair
from tests.corpus.answers import gloo_jobs, seeds
from tests.support.importing import import_trace
from tests.support.ranks_accuracy import blame, gloo_clocks, matching, nccl_clocks

PAIRS, CLOCKS, JOBS = (seeds(name, bench=True) for name in ("matching", "clocks", "stragglers"))
REAL = int(os.environ.get("PROFD_BENCH_ANSWERS_JOBS", "5"))
RANKS = (2, 4, 8)
PAIRS_OF_A_KIND = 3  # jobs of two ranks: more than there are cores wait for each other's
MANY_RANKS = 64
STEPS = 20  # a trace of 100,000 events has too few outermost operators for 200
SIZES = ((100_000 - STEPS, 1), (1_000_000 - STEPS, 1), (998_000 - STEPS, 10))  # events and copies: 10 M is the limit
SECONDS = {"explain": 1.0, "critical": 3.0}  # of a million events
PLANTS = ("5 ms in each 10th", "5 % always")
NOTE_CHARS = 300

child = functools.partial(measure.child, limit=300)


def rows(events: int, part: str = "") -> Iterator[Row]:
    """Of one part, or of all of them. Seeded jobs come first: they take half a minute."""
    for name in [part] if part else PARTS:
        try:
            yield from PARTS[name]()
        except (ChildFailed, subprocess.SubprocessError) as error:
            yield Row("answers", f"{name}: no answer", "", met=False, note=str(error)[-NOTE_CHARS:])


def _row(what: str, ours: str, bar: str, met: bool, note: str = "") -> Row:
    return Row("answers", what, ours, bar=bar, met=met, note=note)


def _matching() -> Iterator[Row]:
    cut = matching(PAIRS)
    told = f"{cut.right} right, {cut.wrong} wrong, {cut.refused} refused of {len(PAIRS)}"
    yield _row("cut windows of two ranks matched", told, "300 right, 2 % refused", cut.right >= 294 and not cut.wrong)
    gloo = gloo_clocks(CLOCKS)
    told = (
        f"{gloo.median / 1000:.0f} us median, {gloo.worst / 1000:.0f} us worst, truth within the bound in {gloo.within}"
    )
    yield _row("clocks, gloo-like", told, "64 us, always within", gloo.median <= 64_000 and gloo.within == len(CLOCKS))
    nccl = nccl_clocks(CLOCKS)
    told = f"{nccl.median / 1000:.1f} us median, {nccl.worst / 1000:.1f} us worst"
    yield _row("clocks, NCCL-like, 50 ppm", told, "4 us, 20 us", nccl.median <= 4000 and nccl.worst <= 20_000)


def _stragglers() -> Iterator[Row]:
    for noisy in (False, True):
        found = [blame(JOBS, ranks, noisy=noisy).wrong for ranks in RANKS]
        what = f"alarms without a plant, {'noisy' if noisy else 'quiet'}"
        yield _row(f"{what}, {RANKS} ranks", f"{found} of {len(JOBS)}", "2", max(found) <= 2)
    for noisy in (False, True):
        for plant in PLANTS:
            seen = [blame(JOBS, ranks, noisy=noisy, plant=plant, queued=noisy) for ranks in RANKS]
            told = f"{[one.found for one in seen]} of {len(JOBS)}; another rank {[one.wrong for one in seen]}"
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


def _without_plant() -> Iterator[Row]:
    pairs = {f"{kind}-{seed}": pair(kind, 2, seed) for kind in gloo_jobs.LATER for seed in range(PAIRS_OF_A_KIND)}
    yield from _what_if("gloo, the plant taken out: critical, and steps of the same window without it", pairs)


def _programs() -> Iterator[Row]:
    what = "programs whose woken threads get a core at once: critical, and steps of the same window that are not late"
    if os.geteuid():
        yield Row("answers", what, "not measured: root is needed, for SCHED_RR")
        return
    yield from _what_if(what, {kind: pair(kind, 2, 0, prompt=True) for kind in gloo_jobs.PROGRAMS})


def _what_if(what: str, jobs: dict[str, Pair]) -> Iterator[Row]:
    pairs = list(jobs.values())
    told = [one for one in pairs if one.said.told]
    close = sum(one.close for one in told)
    found = f"told and within 10 % in {close} of {len(pairs)}, {len(pairs) - len(told)} not told"
    met = close >= 0.8 * len(pairs)
    note = "the mean step with the plant, in ms: " + "; ".join(f"{name} {one}" for name, one in jobs.items())
    yield Row("answers", what, found, bar="8 of 10", met=met, note=note)
    within = sum(one.within for one in pairs)
    endless = sum(not one.said.ends for one in pairs)
    found = f"{within} of {len(pairs)}, {endless} of these ranges have no end"
    yield _row("the same: in the range", found, "8 of 10", within >= 0.8 * len(pairs))


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


def _many_ranks() -> Iterator[Row]:
    root = str(SCRATCH / "ranks")
    events = child("bench.ours.answers:fill", {"root": root, "ranks": MANY_RANKS})["result"]
    found = child("bench.ours.answers:ranks", {"root": root}, environment=ALLOCATOR)
    seconds, cpu, named = (found["result"][key] for key in ("seconds", "cpu", "named"))
    told = f"{seconds:.1f} s by the clock, {cpu:.1f} s of CPU, {found['peak_bytes'] / 1e6:.0f} MB; named {named}"
    met = seconds <= 5 and found["peak_bytes"] <= 600e6 and named == [LATE]
    yield _row(f"ranks of {MANY_RANKS} traces, {events:,} events", told, "5 s, 600 MB", met)
    few, many = (
        child("bench.ours.answers:costs", {"root": root, "traces": traces}, environment=ALLOCATOR)["result"]
        for traces in (2, MANY_RANKS)
    )
    for question, least in few.items():
        yield _growth(f"{question}, ns of CPU an event of 2 / {MANY_RANKS} traces", [least, many[question]])


def _large_traces() -> Iterator[Row]:
    stored = []
    for events, copies in SIZES:
        trace = data.trace(events, steps=STEPS, **({"copies": copies} if copies > 1 else {}))
        out = str(SCRATCH / f"stored-answers-{trace.stem}")
        stored.append((child("bench.ours.engine:store", {"path": str(trace), "out": out})["result"]["events"], out))
    for question, bar in SECONDS.items():
        per_event = [_cpu(question, out, 3 if events < 2_000_000 else 1) / events for events, out in stored]
        seconds = per_event[1] * stored[1][0]
        yield _row(f"{question} of {stored[1][0]:,} events", f"{seconds:.2f} s of CPU", f"{bar:g} s", seconds <= bar)
        yield _growth(f"{question}, ns of CPU an event at 1e5 / 1e6 / 1e7", [each * 1e9 for each in per_event])


def _growth(what: str, per_event: list[float]) -> Row:
    growth, shown = per_event[-1] / per_event[0], " / ".join(f"{each:.0f}" for each in per_event)
    return Row("answers", what, shown, ratio=growth, bar="within 1.5x", met=growth <= 1.5)


def _cpu(question: str, stored: str, repeat: int) -> float:
    arguments = {"job": question, "trace_dir": stored, "repeat": repeat}
    taken: list[float] = child("bench.ours.engine:query_cpu", arguments, environment=ALLOCATOR)["result"]
    return statistics.median(taken)


PARTS: Final[dict[str, Callable[[], Iterator[Row]]]] = {
    "matching": _matching,
    "stragglers": _stragglers,
    "gloo": _real,
    "what-if": _without_plant,
    "what-if-programs": _programs,
    "many-ranks": _many_ranks,
    "growth": _large_traces,
}
