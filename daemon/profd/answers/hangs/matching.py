"""Which rank the others wait for: calls of all ranks, matched by group and sequence.

Rule. A rank waits where a collective of it is not over and its numbers have not changed between two looks. Of the
ranks that have ever called a collective of that group (the group of all ranks: the job's), those are missing that have
not called this sequence. A missing rank that itself waits elsewhere is no cause: what it waits for is looked at
instead; ranks that wait for each other in a circle called the groups in different orders. Ranks that called the same
sequence with another operation, or with another number of elements, do not match.

False positives. A rank that is only late is missing, too. So nothing is said until ranks have waited for 2 s and for
three times the longest pause that their own memory has between two collectives of that group. Ranks that raised an
error in a collective count as waiting in it: their place tells that they do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from profd.answers.hangs.look import Missing, ProcessLook, State, Verdict
from profd.answers.hangs.memory import Call
from profd.model.frame import Frame

WAITED_LEAST_NS: Final = 2_000_000_000
PAUSES: Final = 3
_ALL_RANKS: Final = "default_pg"  # as torch describes the group of init_process_group
_SAME_SIZES: Final = frozenset(
    {"all_reduce", "allreduce", "broadcast", "reduce", "all_gather", "allgather", "_allgather_base"}
)
_NAMES_SHOWN: Final = 8
_PARTNERS_MAX: Final = 64  # groups that may be what each other lacks: all pairs of these are told


@dataclass(frozen=True, slots=True)
class _Key:
    group: str
    sequence: int


@dataclass(frozen=True, slots=True)
class _Wait:
    """Ranks that wait in one collective, and what the others did instead. Indices of looks."""

    key: _Key
    calls: Mapping[int, Call]  # of every rank that called it, over or not
    waiting: tuple[int, ...]
    missing: tuple[int, ...]
    since_ns: int  # the last of those that wait came


def judge(looks: Sequence[ProcessLook], now_ns: int, world: int | None = None) -> Verdict:
    """What is said of the ranks of one job, of one host's clock. `world`: how many there are, where it is known."""
    notes = tuple(f"{look.name}: {look.why}" for look in looks if look.why)
    told = [look for look in looks if look.told]
    if not told:
        return Verdict(State.UNKNOWN, ("No process told of its collectives.",), notes=notes)
    if not any(look.stands for look in told):
        return Verdict(State.HEALTHY, ("No rank stands still in a collective.",), notes=notes)
    waits = _waits(looks)
    if not waits:
        silent = "Ranks stand still in a collective, and their flight recorders do not remember which."
        return Verdict(State.UNKNOWN, (silent,), notes=notes)
    return _judged(looks, waits, now_ns, world, notes)


def _waits(looks: Sequence[ProcessLook]) -> dict[_Key, _Wait]:
    by_key: dict[_Key, dict[int, Call]] = {}
    last: dict[str, dict[int, int]] = {}
    for number, look in enumerate(looks):
        for call in look.memory.calls if look.memory else ():
            if not call.between_two:
                by_key.setdefault(_Key(call.group, call.sequence), {})[number] = call
                reached = last.setdefault(call.group, {})
                reached[number] = max(reached.get(number, -1), call.sequence)
    found: dict[_Key, list[int]] = {}
    for number, look in enumerate(looks):
        for call in look.open_calls() if look.stands else ():
            found.setdefault(_Key(call.group, call.sequence), []).append(number)
    waits = {key: _wait(key, looks, by_key[key], tuple(waiting), last[key.group]) for key, waiting in found.items()}
    return _with_partners(waits)


def _with_partners(waits: dict[_Key, _Wait]) -> dict[_Key, _Wait]:
    """Groups that were never used before, with one rank each that waits: nothing but these can be what each lacks."""
    alone = [wait for wait in waits.values() if not wait.missing and len(wait.calls) == 1 and not _of_all(wait)]
    for wait in alone if 1 < len(alone) <= _PARTNERS_MAX else ():
        others = tuple(each.waiting[0] for each in alone if each is not wait and each.waiting != wait.waiting)
        waits[wait.key] = replace(wait, missing=others)
    return waits


def _of_all(wait: _Wait) -> bool:
    return any(call.described == _ALL_RANKS for call in wait.calls.values())


def _wait(
    key: _Key,
    looks: Sequence[ProcessLook],
    calls: Mapping[int, Call],
    waiting: tuple[int, ...],
    last: Mapping[int, int],
) -> _Wait:
    of_all = any(call.described == _ALL_RANKS for call in calls.values())
    members = [number for number in range(len(looks)) if of_all or number in last]
    # One whose numbers go on was not asked what it remembers: it is not known to be missing.
    known = [number for number in members if looks[number].memory is not None]
    return _Wait(
        key,
        calls,
        waiting,
        tuple(number for number in known if last.get(number, -1) < key.sequence),
        max(calls[number].created_ns for number in waiting),
    )


def _judged(
    looks: Sequence[ProcessLook], waits: Mapping[_Key, _Wait], now_ns: int, world: int | None, notes: tuple[str, ...]
) -> Verdict:
    wait, circle = _root(looks, waits)
    call = wait.calls[wait.waiting[0]]
    others = _absent(looks, call, world)
    unlike = _unlike(wait.calls)
    waited = max(0, now_ns - wait.since_ns)
    usual = max(_longest_pause(looks[number], call.group) for number in wait.waiting)
    where = f"{call.operation} {call.sequence} of {_group(call)}"
    waiting = tuple(looks[number].name for number in wait.waiting)
    missing = tuple(_missing(looks, number, wait, waits) for number in wait.missing) + tuple(
        Missing(f"rank {rank}", what="has no process here that answers: it has ended, is very busy, or runs elsewhere")
        for rank in others
    )
    base = Verdict(
        State.HANG,
        (),
        group=call.described or call.group,
        sequence=call.sequence,
        operation=call.operation,
        waited_ns=waited,
        missing=missing,
        waiting=waiting,
        waits_at=next((looks[number].calls_at for number in wait.waiting if looks[number].calls_at), None),
        notes=notes,
    )
    if waited < max(WAITED_LEAST_NS, PAUSES * usual):
        return replace(base, state=State.HEALTHY, sentences=(_early(where, waiting, missing, waited, usual),))
    if unlike:
        return replace(base, state=State.MISMATCH, sentences=_mismatch(looks, wait, unlike, where))
    return replace(base, sentences=tuple(_hang(base, looks, wait, where, circle)))


def _root(looks: Sequence[ProcessLook], waits: Mapping[_Key, _Wait]) -> tuple[_Wait, bool]:
    """The collective to blame, and whether its ranks wait for each other in a circle."""
    elsewhere: dict[int, _Key] = {}
    for wait in waits.values():
        for number in wait.waiting:
            elsewhere.setdefault(number, wait.key)

    def elsewhere_of(wait: _Wait) -> int:
        """How many of the missing wait in another collective."""
        return sum(number in elsewhere for number in wait.missing)

    ends = [wait for wait in waits.values() if not wait.missing or elsewhere_of(wait) < len(wait.missing)]
    if not ends:
        return _of_circle(waits, elsewhere), True
    # Ranks that never came before none; one whose missing ranks do not wait elsewhere is nearest to the cause.
    return min(
        ends, key=lambda wait: (not wait.missing, elsewhere_of(wait) > 0, -len(wait.waiting), wait.since_ns)
    ), False


def _of_circle(waits: Mapping[_Key, _Wait], elsewhere: Mapping[int, _Key]) -> _Wait:
    """One that leads back to itself: the way from any, by the first rank that is missing in each, ends in it."""
    wait, seen = next(iter(waits.values())), set[_Key]()
    while wait.key not in seen:
        seen.add(wait.key)
        wait = waits[elsewhere[wait.missing[0]]]
    return wait


def _absent(looks: Sequence[ProcessLook], call: Call, world: int | None) -> list[int]:
    """Ranks of the group of all that have no process among the looks."""
    ranks = {look.rank for look in looks if look.rank is not None}
    if call.described != _ALL_RANKS or not ranks or len(ranks) != len(looks):
        return []
    return [rank for rank in range(min(world or 0, 1 << 16)) if rank not in ranks]


def _unlike(calls: Mapping[int, Call]) -> tuple[int, ...]:
    """Ranks whose call is not that of most."""
    kinds: dict[tuple[str, int | None], list[int]] = {}
    operations = {call.operation for call in calls.values()}
    sized = len(operations) == 1 and operations <= _SAME_SIZES
    for number, call in calls.items():
        kinds.setdefault((call.operation, call.elements if sized else None), []).append(number)
    if len(kinds) < 2:
        return ()
    most = max(kinds.values(), key=len)
    return tuple(number for numbers in kinds.values() if numbers is not most for number in numbers)


def _longest_pause(look: ProcessLook, group: str) -> int:
    """Between calls of a group one after the other, in ns; the first one is left out, since the job started then."""
    created = sorted(call.created_ns for call in look.memory.calls if call.group == group) if look.memory else []
    return max((later - earlier for earlier, later in pairwise(created[1:])), default=0)


def _missing(looks: Sequence[ProcessLook], number: int, wait: _Wait, waits: Mapping[_Key, _Wait]) -> Missing:
    look = looks[number]
    mine = [call for call in look.memory.calls if call.group == wait.key.group] if look.memory else []
    last = max((call.sequence for call in mine if not call.between_two), default=None)
    own = next((each for each in waits.values() if number in each.waiting), None)
    if own is not None:
        call = own.calls[number]
        return Missing(
            look.name, last, look.calls_at or look.at, f"waits in {call.operation} {call.sequence} of {_group(call)}"
        )
    return Missing(look.name, last, look.at, "keeps the GIL and does not run" if look.holds_gil else "")


def _early(where: str, waiting: Sequence[str], missing: Sequence[Missing], waited: int, usual: int) -> str:
    """No alarm: ranks are late now and then."""
    for_whom = f" for {_names(each.name for each in missing)}" if missing else ""
    past = f"pauses up to {_seconds(usual)} are usual there" if usual else "there is no usual pause to compare it with"
    return f"{_names(waiting)} {_have(waiting)} waited {_seconds(waited)}{for_whom} in {where}; {past}."


def _mismatch(looks: Sequence[ProcessLook], wait: _Wait, unlike: Sequence[int], where: str) -> tuple[str, ...]:
    usual = [number for number in wait.calls if number not in unlike]
    right = wait.calls[usual[0]]
    sentences = []
    for number in unlike:
        call = wait.calls[number]
        same = call.operation == right.operation
        mine = f"{call.elements} elements" if same else call.operation
        theirs = f"{right.elements}" if same else right.operation
        verb = "came with" if same else "called"
        place = looks[number].calls_at or looks[number].at
        at = f", and is at {_place(place)}" if place else ""
        others = _names(looks[each].name for each in usual)
        sentences.append(f"Ranks do not match in {where}: {looks[number].name} {verb} {mine}, {others} {theirs}{at}.")
    return tuple(sentences)


def _hang(verdict: Verdict, looks: Sequence[ProcessLook], wait: _Wait, where: str, circle: bool) -> Iterable[str]:
    waited = _seconds(verdict.waited_ns or 0)
    at = f" ({_place(verdict.waits_at)})" if verdict.waits_at else ""
    if not verdict.missing:
        yield f"Every rank that is known has been in {where}{at} for {waited}: look at the network between them."
        return
    absent = _names(each.name for each in verdict.missing)
    are = "are" if len(verdict.missing) > 1 else "is"
    others = f"{_names(verdict.waiting)} {_have(verdict.waiting)} waited {waited} there{at}"
    yield f"{absent} {are} missing in {where}: {others}."
    for each in verdict.missing[:_NAMES_SHOWN]:
        yield _of(each)
    if circle:
        unused = (
            " (if they belong to both: that is not recorded before a group is used)" if len(wait.calls) == 1 else ""
        )
        yield f"These ranks wait for each other{unused}: they call collectives of the groups in different orders."
    if skipped := _skipped(looks, wait):
        yield skipped


def _of(missing: Missing) -> str:
    parts = [missing.what] if missing.what else []
    if missing.at:
        parts.append(f"is at {_place(missing.at)}")
    if missing.last is not None and missing.last >= 0:
        parts.append(f"called {missing.last} of that group last")
    elif not missing.what:
        parts.append("called none of that group that is still remembered")
    return f"{missing.name} {', and '.join(parts)}."


def _skipped(looks: Sequence[ProcessLook], wait: _Wait) -> str:
    """The first sequence at which a missing rank called what the others did not: it left out a call there."""
    if not wait.missing:
        return ""
    late, usual = wait.missing[0], wait.waiting[0]
    theirs = _of_group(looks[usual], wait.key.group)
    for sequence, call in sorted(_of_group(looks[late], wait.key.group).items()):
        other = theirs.get(sequence)
        if other is not None and _unlike({0: call, 1: other}):
            return (
                f"From {sequence} on {looks[late].name} does not match: it called {_described(call)} where "
                f"{looks[usual].name} called {_described(other)}. It left out a call before, or made one more."
            )
    return ""


def _of_group(look: ProcessLook, group: str) -> dict[int, Call]:
    calls = look.memory.calls if look.memory else ()
    return {call.sequence: call for call in calls if call.group == group and not call.between_two}


def _described(call: Call) -> str:
    return call.operation if call.elements is None else f"{call.operation} of {call.elements} elements"


def _group(call: Call) -> str:
    return "the group of all ranks" if call.described == _ALL_RANKS else f"group {call.described or call.group}"


def _place(frame: Frame) -> str:
    return f"{frame.function} ({frame.file}:{frame.line})" if frame.line else f"{frame.function} ({frame.file})"


def _names(names: Iterable[str]) -> str:
    """`ranks 0, 1 and 3`: at most eight, and how many more."""
    given = list(names)
    bare = [name.removeprefix("rank ") for name in given[:_NAMES_SHOWN]]
    if len(given) == 1 or any(not name.startswith("rank ") for name in given):
        bare = given[:_NAMES_SHOWN]
        start = ""
    else:
        start = "ranks "
    if len(given) > _NAMES_SHOWN:
        return f"{start}{', '.join(bare)} and {len(given) - _NAMES_SHOWN} more"
    return start + (bare[0] if len(bare) == 1 else f"{', '.join(bare[:-1])} and {bare[-1]}")


def _have(names: Sequence[str]) -> str:
    return "has" if len(names) == 1 else "have"


def _seconds(ns: int) -> str:
    return f"{ns / 1e9:.1f} s"
