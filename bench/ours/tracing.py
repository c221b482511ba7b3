"""Calls and programs under tracers that take turns in one process. CPython 3.11 to 3.13; imports nothing of profd."""

from __future__ import annotations

import ast
import cProfile
import gc
import io
import json.decoder
import json.encoder
import json.scanner
import pickle
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import floors
from bench.measure import SCRATCH

ARENA_BYTES = 64 << 20
FLOOR_EVENTS = 1 << 20
VIZTRACER = SCRATCH / "viztracer"  # pip install --target .bench/viztracer viztracer


@contextmanager
def none() -> Iterator[None]:
    """Without a tracer."""
    yield


@contextmanager
def ours() -> Iterator[None]:
    """The recorder, its arena resident."""
    yield from _ours(c_calls=False)


@contextmanager
def ours_c_calls() -> Iterator[None]:
    """With C functions."""
    yield from _ours(c_calls=True)


def _ours(c_calls: bool) -> Iterator[None]:
    from profclient import _recorder
    from profclient.tracer import Tracer

    _recorder.arm(arena_bytes=ARENA_BYTES, sources=2)
    _recorder.populate()
    tracer = Tracer()
    tracer.start(c_calls=c_calls)
    try:
        yield
    finally:
        tracer.stop()
        lost = _recorder.totals()["arena_full"]
        _recorder.disarm()
        while not _recorder.release():
            pass
        assert lost == 0, "dropping is cheaper than recording: make the arena larger"


_floor = None


@contextmanager
def floor() -> Iterator[None]:
    """The bare callback."""
    global _floor
    if _floor is None:
        _floor = floors.extension("tracer")
        _floor.open_buffer(FLOOR_EVENTS)
    if sys.version_info < (3, 12):
        _floor.start()
        try:
            yield
        finally:
            _floor.stop()
    else:
        yield from _floor_monitoring(_floor)


def _floor_monitoring(module: Any) -> Iterator[None]:
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined]  # checked for 3.11
    events = monitoring.events
    begins = (events.PY_START, events.PY_RESUME, events.PY_THROW)
    ends = (events.PY_RETURN, events.PY_YIELD, events.PY_UNWIND)
    callbacks = {**dict.fromkeys(begins, module.on_begin), **dict.fromkeys(ends, module.on_end)}
    monitoring.use_tool_id(5, "floor")
    for event, callback in callbacks.items():
        monitoring.register_callback(5, event, callback)
    monitoring.set_events(5, sum(callbacks))
    try:
        yield
    finally:
        monitoring.set_events(5, 0)
        monitoring.free_tool_id(5)


@contextmanager
def cprofile() -> Iterator[None]:
    """CPython's own."""
    profiler = cProfile.Profile()
    profiler.enable()
    try:
        yield
    finally:
        profiler.disable()


@contextmanager
def viztracer() -> Iterator[None]:
    """Without C functions, as ours."""
    from viztracer import VizTracer

    tracer = VizTracer(tracer_entries=8_000_000, ignore_c_function=True, verbose=0)
    tracer.start()
    try:
        yield
    finally:
        tracer.stop()
        tracer.clear()


def _tracers(names: list[str]) -> dict[str, Callable[[], Any]]:
    if VIZTRACER.is_dir():
        sys.path.append(str(VIZTRACER))
    else:
        names = [name for name in names if name != "viztracer"]
    return {name: globals()[name] for name in names}


# --- a call ---


def _leaf() -> None:
    pass


def _calls(count: int) -> None:
    for _ in range(count):
        _leaf()


def _loop(count: int) -> None:
    for _ in range(count):
        pass


def per_call(tracers: list[str], count: int, rounds: int) -> dict[str, float]:
    """Seconds of a call and its return, net of the loop around it, which is traced as well: the best of all rounds."""
    best: dict[tuple[str, Callable[[int], None]], float] = {}
    for _ in range(rounds):
        for name, tracer in _tracers(tracers).items():
            with tracer():
                for function in (_calls, _loop):
                    took = _took(function, count)
                    best[name, function] = min(took, best.get((name, function), took))
    return {name: (best[name, _calls] - best[name, _loop]) / count for name, _ in best}


def _took(function: Callable[[int], None], count: int) -> float:
    begin = time.thread_time()  # others use these cores too
    function(count)
    return time.thread_time() - begin


# --- programs ---


def _source() -> str:
    import argparse

    return Path(argparse.__file__).read_text()


def unparse() -> None:
    """A syntax tree to source: many small methods."""
    ast.unparse(ast.parse(_source()))


def pure_json() -> None:
    """JSON out and in without the C parts: generators and closures."""
    document = [{"name": f"row {number}", "values": [number, number / 7, None, True]} for number in range(1500)]
    encoder = json.encoder.JSONEncoder(indent=1)  # an indent means Python
    decoder = json.decoder.JSONDecoder()
    decoder.parse_string = json.decoder.py_scanstring  # type: ignore[attr-defined]
    decoder.scan_once = json.scanner.py_make_scanner(decoder)  # type: ignore[attr-defined]
    assert decoder.decode(encoder.encode(document)) == document


def pure_pickle() -> None:
    """Pickle in Python: long functions, few calls each."""
    document = [{"name": f"row {number}", "values": [number, number / 7]} for number in range(1500)]
    stream = io.BytesIO()
    pickle._Pickler(stream).dump(document)
    stream.seek(0)
    assert pickle._Unpickler(stream).load() == document


PROGRAMS = {
    "ast.unparse of argparse.py": unparse,
    "json without its C parts": pure_json,
    "pickle without its C parts": pure_pickle,
}


def programs(tracers: list[str], rounds: int) -> dict[str, dict[str, list[float]]]:
    """Seconds of each program under each tracer, one figure a round."""
    found: dict[str, dict[str, list[float]]] = {name: {} for name in PROGRAMS}
    gc.disable()
    for program in PROGRAMS.values():
        program()
    for _ in range(rounds):
        for name, program in PROGRAMS.items():
            for kind, tracer in _tracers(tracers).items():
                with tracer():
                    begin = time.thread_time()
                    program()
                    took = time.thread_time() - begin
                found[name].setdefault(kind, []).append(took)
    return found


def events(tracer: str) -> dict[str, int]:
    """Begins and ends that each program makes."""
    from profclient import _recorder

    found = {}
    for name, program in PROGRAMS.items():
        with _tracers([tracer])[tracer]():
            program()
            found[name] = _recorder.tracer_statistics()["events"]
    return found
