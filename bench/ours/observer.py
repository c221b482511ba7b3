"""PyTorch under the observer, under torch's profiler, under a callback that does nothing, and under none, turn about.

Times are of the thread's CPU, in which backward runs as well where there is no GPU: what recording adds to an op is a
few per cent of what the scheduler adds to a loop. The observer writes through one long arena, as a long capture does,
so that no block finds its slots in a cache.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from profclient import _recorder
from profclient.torch import observer
from torch import nn

from bench.floors import torch_library
from bench.pairing import WITHOUT, Round

INPUTS, MODULES = 1, 8
OPS = 4
ARENA_BYTES = 64 << 20
LONG_ARENA_BYTES = 256 << 20
WARM_BLOCKS = 0.2  # of a block, after something was turned on or off
Work = Callable[[], object]


def per_op(count: int, rounds: int) -> dict[str, Any]:
    """Rounds of blocks of `count` ops (add_ of 4 floats)."""
    torch.set_num_threads(1)
    target, operand = torch.ones(4), torch.ones(4)
    return _rounds(lambda: target.add_(operand), (*_USUAL, "kineto all threads"), rounds, count)


def per_module_op(count: int, rounds: int) -> dict[str, Any]:
    """The same of calls of a TorchScript module, where there is a module hierarchy to record."""
    torch.set_num_threads(1)
    model = torch.jit.script(nn.Sequential(nn.ReLU())).eval()
    operand = torch.ones(4)
    with torch.no_grad():
        for _ in range(20):
            model(operand)
        return _rounds(lambda: model(operand), ("modules", "kineto modules"), rounds, count)


def per_step(model: str, steps: int, rounds: int) -> dict[str, Any]:
    """The same of training steps."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    step = MODELS[model]()
    for _ in range(20):
        step()
    return _rounds(step, _USUAL, rounds, steps)


def stop_pause(ops: int) -> dict[str, float]:
    """Seconds: the job's longest op while a capture of so many ops was stopped, its median op, and the stop itself."""
    torch.set_num_threads(1)
    target, operand = torch.ones(4), torch.ones(4)
    loaded = load_observer()
    _recorder.arm(arena_bytes=ARENA_BYTES, sources=OPS)
    loaded.start(0)
    stopped = threading.Event()
    took: list[float] = []

    def stop() -> None:
        begin = time.perf_counter()
        _recorder.disarm()  # on the agent's own thread, which holds no GIL
        loaded.stop()
        took.append(time.perf_counter() - begin)
        stopped.set()

    for _ in range(ops):
        target.add_(operand)
    recorded = _recorder.totals()["recorded"]
    ends = [time.perf_counter()]
    stopping = threading.Thread(target=stop)
    stopping.start()
    while not stopped.is_set():
        target.add_(operand)
        ends.append(time.perf_counter())
    stopping.join()
    gaps = [after - before for before, after in itertools.pairwise(ends)]
    _release()
    return {"recorded": recorded, "longest": max(gaps, default=0.0), "stop": took[0]}


def kineto_stop(ops: int) -> dict[str, float]:
    """Seconds that torch's own profiler stops for, on the training thread."""
    torch.set_num_threads(1)
    target, operand = torch.ones(4), torch.ones(4)
    profiler = torch.autograd.profiler.profile(use_kineto=True)
    profiler.__enter__()
    for _ in range(ops):
        target.add_(operand)
    begin = time.perf_counter()
    torch._C._autograd._disable_profiler()
    return {"stop": time.perf_counter() - begin}


def after_stop(count: int, rounds: int) -> dict[str, Any]:
    """Rounds of blocks of a process that never recorded, and of one that has stopped recording: two processes."""
    helpers = {way: _Idle(way, count) for way in (WITHOUT, "stopped")}
    try:
        found = [{way: helpers[way].block() for way in _shuffled(helpers, number)} for number in range(rounds)]
    finally:
        for helper in helpers.values():
            helper.end()
    return {"rounds": found, "events": 0.0}


class _Idle:
    """A process that times a block of ops when asked."""

    def __init__(self, way: str, count: int) -> None:
        code = f"from bench.ours.observer import idle_blocks; idle_blocks({way!r}, {count})"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def block(self) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(json.loads(self._process.stdout.readline()))

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


def idle_blocks(way: str, count: int) -> None:
    """In a process of its own: a block for each line of standard input."""
    torch.set_num_threads(1)
    target, operand = torch.ones(4), torch.ones(4)

    def work() -> object:
        return target.add_(operand)

    loaded = load_observer()
    if way == "stopped":
        with _arena(), _observed(loaded, INPUTS):
            for _ in range(1000):
                work()
    for _ in sys.stdin:
        _cpu_ns(work, count // 5)
        print(_cpu_ns(work, count) / count, flush=True)


# --- ways of recording ---


@contextlib.contextmanager
def _arena() -> Iterator[None]:
    _recorder.arm(arena_bytes=LONG_ARENA_BYTES, sources=OPS)
    _recorder.populate()
    try:
        yield
    finally:
        _recorder.disarm()
        dropped = _recorder.totals()["arena_full"]
        _release()
    if dropped:
        raise RuntimeError(f"{dropped} events did not fit the arena: too many rounds for this measurement")


@contextlib.contextmanager
def _observed(loaded: observer.Observer, wanted: int) -> Iterator[None]:
    loaded.start(wanted)
    try:
        yield
    finally:
        loaded.stop()


@contextlib.contextmanager
def _callback(inputs: bool) -> Iterator[None]:
    library = torch_library("observer")
    library.floor_start(int(inputs))
    try:
        yield
    finally:
        library.floor_stop()


@contextlib.contextmanager
def _kineto(**options: Any) -> Iterator[None]:
    profiler = torch.autograd.profiler.profile(use_kineto=True, **options)
    profiler.__enter__()
    try:
        yield
    finally:
        torch._C._autograd._disable_profiler()
        torch.autograd.profiler._is_profiler_enabled = False


def _all_threads() -> Any:
    return torch._C._profiler._ExperimentalConfig(profile_all_threads=True)


Way = Callable[[], contextlib.AbstractContextManager[None]]


def _ways(loaded: observer.Observer) -> dict[str, Way]:
    return {
        WITHOUT: contextlib.nullcontext,
        "callback": lambda: _callback(False),
        "callback inputs": lambda: _callback(True),
        "observer": lambda: _observed(loaded, 0),
        "observer shapes": lambda: _observed(loaded, INPUTS),
        "modules": lambda: _observed(loaded, INPUTS | MODULES),
        "kineto": _kineto,
        "kineto shapes": lambda: _kineto(record_shapes=True),
        "kineto modules": lambda: _kineto(record_shapes=True, with_stack=True, with_modules=True),
        "kineto all threads": lambda: _kineto(experimental_config=_all_threads()),
    }


_USUAL = ("callback", "callback inputs", "observer", "observer shapes", "kineto", "kineto shapes")


def _rounds(work: Work, ways: tuple[str, ...], rounds: int, count: int) -> dict[str, Any]:
    """`rounds` of a block of each way, ns a call, and the events that a call is."""
    loaded = load_observer()
    with _arena():
        with _observed(loaded, 0):
            work()
        events = _recorder.totals()["recorded"]
        known = _ways(loaded)
        found = [_round(work, known, (WITHOUT, *ways), count, number) for number in range(rounds)]
    return {"rounds": found, "events": float(events)}


def _round(work: Work, known: dict[str, Way], ways: tuple[str, ...], count: int, number: int) -> Round:
    taken = {}
    for way in _shuffled(ways, number):
        with known[way]():
            _cpu_ns(work, max(1, int(count * WARM_BLOCKS)))
            taken[way] = _cpu_ns(work, count) / count
    return taken


def _shuffled(ways: Any, number: int) -> list[str]:
    return random.Random(number).sample(sorted(ways), len(ways))


def _cpu_ns(work: Work, count: int) -> int:
    begin = time.thread_time_ns()
    for _ in range(count):
        work()
    return time.thread_time_ns() - begin


def load_observer() -> observer.Observer:
    """The observer for this torch. RuntimeError where none has been built."""
    found = observer.load()
    if found is None:
        raise RuntimeError("there is no build of the observer for this torch: profctl torch build")
    return found


def _release() -> None:
    while not _recorder.release():
        time.sleep(0.001)


# --- training steps ---


def _tiny_mlp() -> Work:
    layers = (nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    return _training(nn.Sequential(*layers), torch.randn(32, 64))


def _larger_mlp() -> Work:
    layers = (nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    return _training(nn.Sequential(*layers), torch.randn(64, 512))


def _transformer() -> Work:
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0.0)
    encoder = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    return _training(nn.Sequential(encoder, nn.Flatten(), nn.Linear(16 * 64, 10)), torch.randn(4, 16, 64))


def _training(model: nn.Module, inputs: torch.Tensor) -> Work:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, foreach=False)
    labels = torch.zeros(len(inputs), dtype=torch.long)

    def step() -> None:
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


MODELS: dict[str, Callable[[], Work]] = {
    "tiny MLP": _tiny_mlp,
    "small transformer": _transformer,
    "larger MLP": _larger_mlp,
}
