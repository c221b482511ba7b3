"""Rounds of kills: lanes make captures, the killer kills, and then all of it is looked at."""

from __future__ import annotations

import contextlib
import ctypes
import random
import shutil
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from profproto.v1 import capture_pb2, trace_pb2

from kindness.ledger import Ledger
from soak import leftovers
from soak.client import Refused
from soak.killing import Killer
from soak.lanes.capturing import Endless
from soak.lanes.counting import Counting
from soak.lanes.importing import Importing
from soak.lanes.pushing import Pushing
from soak.lanes.sampling import Sampling
from soak.rig import Rig, rig

_UIDS: Final = (20_001, 20_002, 0)  # of programs that count; the daemon's own user is one
_SAMPLED_UID: Final = 20_003
_KILLS: Final = 12  # of a round
_FAULTS_MAX: Final = 5  # directories that are kept; then it is enough
_PR_SET_CHILD_SUBREAPER: Final = 36


def run(ledger: Ledger, kills: int, seed: int) -> bool:
    """So many kills; whether all was well.

    A fault ends its round and keeps its directory; the next round begins in another one.
    """
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    done, number, faulty, begin = 0, 0, 0, time.monotonic()
    while done < kills and faulty < _FAULTS_MAX:
        directory = Path(tempfile.mkdtemp(prefix="soak-", dir="/tmp"))  # socket paths hold 107 bytes
        directory.chmod(0o755)  # programs of other users go there
        with rig(directory, ledger, random.Random(f"{seed}-{number}")) as one:
            sockets = leftovers.baseline(one)
            lanes = _lanes(one)
            while done < kills and not one.faults:
                quota = min(_KILLS, kills - done)
                number += 1
                one.chance.seed(f"{seed}-{number}")
                _round(one, lanes, quota, sockets)
                done += quota - max(one.quota, 0)
                rate = (time.monotonic() - begin) / max(done, 1)
                print(f"round {number}: {done} kills of {kills}, {rate:.1f} s each; {_told(one)}", flush=True)
            one.quota = 0
            with _faults(one):
                one.end_jobs()
        if one.faults:
            faulty += 1
            print(f"FAULT in round {number} of SEED={seed}; all of it lies in {directory}", flush=True)
        else:
            shutil.rmtree(directory, ignore_errors=True)
    return not faulty


def _lanes(one: Rig) -> list[Callable[[], None]]:
    counting = [Counting(one, uid).run for uid in _UIDS]
    return [*counting, Sampling(one, _SAMPLED_UID).run, Pushing(one).run, Importing(one).run]


def _round(one: Rig, lanes: list[Callable[[], None]], quota: int, sockets: frozenset[str]) -> None:
    one.quota = quota
    one.outcomes.clear()
    killer, *threads = [
        threading.Thread(target=_guarded, args=(one, each), daemon=True) for each in (Killer(one).run, *lanes)
    ]
    try:
        for thread in (killer, *threads):
            thread.start()
        for thread in threads:
            thread.join()
    finally:  # also of a run that is broken off: lanes may go on, but nobody starts another daemon
        one.quota = 0 if threads[0].is_alive() else one.quota
        killer.join()
    if not one.faults:
        _guarded(one, lambda: _check(one, sockets))


def _guarded(one: Rig, part: Callable[[], None]) -> None:
    with _faults(one):
        part()


@contextlib.contextmanager
def _faults(one: Rig) -> Iterator[None]:
    try:
        yield
    except Endless as error:
        one.endless("", str(error))
    except Exception as error:
        one.fault(f"{type(error).__name__}: {error}\n{traceback.format_exc()}")


def _check(one: Rig, sockets: frozenset[str]) -> None:
    """All that was told is true still, and nothing is left."""
    client = one.client()
    try:
        for capture in one.asked:
            if not client.captures("GetCapture", capture_pb2.CaptureRef(id=capture)).HasField("finished_ns"):
                one.endless("", f"capture {capture} has ended, and has no end now")
        for trace, events in one.traces.items():
            try:
                there = client.traces("GetTrace", trace_pb2.TraceRef(id=trace)).events
            except Refused as error:
                one.fault(f"trace {trace} was stored, and cannot be had: {error}")
                continue
            if events not in (-1, there):
                one.fault(f"trace {trace} had {events} events, and has {there}")
        one.watcher.forget()
        for trace in one.traces:
            client.traces("DeleteTrace", trace_pb2.TraceRef(id=trace))
    finally:
        client.close()
    one.asked.clear()
    one.traces.clear()
    for what in leftovers.settled(one, frozenset((*_UIDS, _SAMPLED_UID)) - {0}, sockets):
        one.fault(what)
    if "Traceback" in one.found.running.log:
        one.fault("a traceback in the daemon's log")


def _told(one: Rig) -> str:
    return ", ".join(f"{count} {name}" for name, count in one.outcomes.most_common())
