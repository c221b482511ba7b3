"""Long use: very many small captures and questions in one daemon, and whether anything of it grows."""

from __future__ import annotations

import json
import random
import shutil
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import grpc
from profproto.v1 import capture_pb2 as pb
from profproto.v1 import trace_pb2

from kindness.ledger import Ledger
from soak.client import Client, Refused
from soak.counts import Slopes
from soak.rig import Rig, rig, until
from soak.slopes import slope
from soak.usage import UNITS, Usage, usage

_UIDS: Final = (20_001, 20_002, 20_003)  # of programs; each is captured by one thread
_ASKERS: Final = 4
_STORE: Final = ("--store-bytes", "24MiB")  # some hundred traces: each new one evicts an old one
_LOOK_SECONDS: Final = 2.0
_TELL_SECONDS: Final = 60.0
# Captures. By then 1,000 records of ended ones are kept, and each new one costs an old one; and the table of interned
# strings of CPython, which is made anew every 2,000 captures, has been once (docs/reliability.md).
_SETTLED: Final = 3000
_SETTLED_SHARE: Final = 0.3  # of a run that is too short for that
_NOTHING: Final = "nothing was recorded"  # within so short a window, where the program did not get to run
_ENDED: Final = (pb.STATE_STORED, pb.STATE_PARTIAL)


@dataclass
class Steady:
    """What the threads of a run share."""

    rig: Rig
    captures: int
    questions: int
    lock: threading.Lock = field(default_factory=threading.Lock)
    begun: int = 0
    asked: int = 0
    done: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    looks: list[Usage] = field(default_factory=list)

    def next_capture(self) -> bool:
        """Whether another one is to be made."""
        with self.lock:
            self.begun += 1
            return self.begun <= self.captures and not self.rig.faults

    def next_question(self) -> bool:
        """Whether another one is to be asked: they go along with the captures, so that both grow together."""
        while not self.rig.faults:
            with self.lock:
                if self.asked >= self.questions:
                    return False
                if self.asked * self.captures <= self.questions * (self.done + 1):
                    self.asked += 1
                    return True
            time.sleep(0.01)
        return False


def run(ledger: Ledger, captures: int, questions: int, seed: int) -> bool:
    """Whether nothing grew and nothing went wrong. A fault keeps the directory."""
    directory = Path(tempfile.mkdtemp(prefix="soak-", dir="/tmp"))
    directory.chmod(0o755)
    begin = time.monotonic()
    with rig(directory, ledger, random.Random(seed), _STORE) as one:
        one.watcher.close()  # what it asks would be most of the questions
        steady = Steady(one, captures, questions)
        parts = [partial(_capturing, steady, uid) for uid in _UIDS]
        parts += [partial(_asking, steady, random.Random(f"{seed}-{number}")) for number in range(_ASKERS)]
        _together(steady, parts)
        one.end_jobs()
    seconds = time.monotonic() - begin
    raw = ledger.folder / f"steady-{int(time.time())}.jsonl"
    raw.write_text("".join(f"{json.dumps(asdict(look))}\n" for look in steady.looks))
    if one.faults:
        print(f"FAULT with SEED={seed}; all of it lies in {directory}", flush=True)
        return False
    shutil.rmtree(directory, ignore_errors=True)
    return _told(ledger, steady, seconds)


def _together(steady: Steady, parts: Sequence[Callable[[], object]]) -> None:
    threads = [threading.Thread(target=_guarded, args=(steady.rig, part)) for part in parts]
    for thread in threads:
        thread.start()
    told = begin = time.monotonic()
    while any(thread.is_alive() for thread in threads):
        daemon = steady.rig.found.running
        steady.looks.append(usage(daemon.process.pid, daemon.state_dir, steady.done, steady.asked))
        if time.monotonic() > told + _TELL_SECONDS:
            told = time.monotonic()
            _progress(steady, told - begin)
        threads[0].join(_LOOK_SECONDS if threads[0].is_alive() else 0)
        time.sleep(0 if threads[0].is_alive() else _LOOK_SECONDS)
    for thread in threads:
        thread.join()
    _progress(steady, time.monotonic() - begin)


def _guarded(one: Rig, part: Callable[[], None]) -> None:
    try:
        part()
    except Exception as error:
        one.fault(f"{type(error).__name__}: {error}\n{traceback.format_exc()}")


def _progress(steady: Steady, seconds: float) -> None:
    captures, questions = steady.done / seconds, steady.asked / seconds
    print(
        f"{steady.done} captures ({captures:.1f}/s), {steady.asked} questions ({questions:.1f}/s), {steady.looks[-1]}; "
        f"{dict(steady.outcomes.most_common(8))}",
        flush=True,
    )


def _capturing(steady: Steady, uid: int) -> None:
    """Captures of one program, one after the other."""
    one, client = steady.rig, steady.rig.client()
    count = one.found.directory / f"count-{uid}"
    count.write_bytes(bytes(8))
    count.chmod(0o666)
    job = one.start("count", count, uid=uid)
    until(lambda: _ready(client, job.pid), f"pid {job.pid} is attached")
    while steady.next_capture():
        ended = _capture(client, job.pid)
        with steady.lock:
            steady.done += 1
            steady.outcomes[pb.State.Name(ended.state).removeprefix("STATE_").lower()] += 1
        if ended.state not in _ENDED and _NOTHING not in ended.message:
            one.fault(f"a capture of pid {job.pid} ended {pb.State.Name(ended.state)}: {ended.message}")
    client.close()


def _ready(client: Client, pid: int) -> bool:
    targets = client.captures("ListTargets", pb.ListTargetsRequest(selector=pb.Selector(pids=[pid]))).targets
    return any("sdk" in target.sources for target in targets)


def _capture(client: Client, pid: int) -> pb.TargetStatus:
    """From its start to its end; a process that is still held by the last one is asked again."""
    request = pb.StartCaptureRequest(
        selector=pb.Selector(pids=[pid]), options=pb.Options(source="sdk", duration_ns=20_000_000)
    )
    while True:
        capture = client.captures("StartCapture", request)
        if capture.HasField("finished_ns") is False:
            capture = client.captures("WatchCapture", pb.WatchCaptureRequest(id=capture.id))[-1]
        target: pb.TargetStatus = capture.targets[0]
        if target.state != pb.STATE_BUSY:
            return target
        time.sleep(0.02)


_QUESTIONS: Final[dict[str, tuple[int, Callable[[str], Any]]]] = {
    "ListTraces": (25, lambda _: trace_pb2.ListTracesRequest(limit=20)),
    "KeyAverages": (30, lambda trace: trace_pb2.KeyAveragesRequest(id=trace)),
    "GetTrace": (20, lambda trace: trace_pb2.TraceRef(id=trace)),
    "Summary": (10, lambda trace: trace_pb2.TraceRef(id=trace)),
    "Tree": (3, lambda trace: trace_pb2.TreeRequest(id=trace)),
    "Sql": (2, lambda trace: trace_pb2.SqlRequest(id=trace, sql="select count(*) from events")),
    "ListCaptures": (10, lambda _: pb.ListCapturesRequest(limit=20)),
}


def _asking(steady: Steady, chance: random.Random) -> None:
    """Questions about traces that may be evicted at any moment."""
    client, shares = steady.rig.client(), [share for share, _ in _QUESTIONS.values()]
    traces = [""]
    while steady.next_question():
        [name] = chance.choices([*_QUESTIONS], shares)
        if not traces[0]:
            name = "ListTraces"
        ask = client.captures if name == "ListCaptures" else client.traces
        try:
            answer = ask(name, _QUESTIONS[name][1](chance.choice(traces)))
        except Refused as error:
            if error.code is not grpc.StatusCode.NOT_FOUND:
                raise
            with steady.lock:
                steady.outcomes["trace gone"] += 1
            continue
        if name == "ListTraces":
            traces = [trace.id for trace in answer.traces] or [""]
    client.close()


def _told(ledger: Ledger, steady: Steady, seconds: float) -> bool:
    settled = _SETTLED if steady.captures >= 2 * _SETTLED else int(_SETTLED_SHARE * steady.captures)
    looks = [look for look in steady.looks if settled <= look.captures < steady.captures]
    grows = False
    for name, (title, unit) in UNITS.items():
        try:
            found = slope([look.captures / 1000 for look in looks], [getattr(look, name) for look in looks])
        except (ValueError, ZeroDivisionError) as error:
            print(f"no slope of {title}: {error}; make the run longer")
            return False
        grows |= found.grows
        least, most = (each(getattr(look, name) for look in looks) for each in (min, max))
        ledger.add(
            Slopes(name, steady.captures, steady.asked, settled, found.value, found.low, found.high, least, most)
        )
        print(
            f"{title}: {found.value:+.3f} {unit} in 1,000 captures [{found.low:+.3f}, {found.high:+.3f}], "
            f"{least} to {most}{', GROWS' if found.grows else ''}"
        )
    print(f"{steady.captures} captures and {steady.asked} questions in {seconds:.0f} s")
    return not grows
