"""PyTorch under the observer, under torch's profiler and under neither, turn about in one process.

Times are of the thread's CPU: what recording adds to an op is a few per cent of what the scheduler adds to a loop.
"""

from __future__ import annotations

import contextlib
import itertools
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from profclient import _recorder
from profclient.torch import observer
from torch import nn

INPUTS, MODULES = 1, 8
OPS = 4
ARENA_BYTES = 64 << 20
Work = Callable[[], object]


def per_op(count: int, rounds: int) -> dict[str, float]:
    """Ns that each way of recording adds to an op, the median of rounds, and `off`: of the op itself."""
    torch.set_num_threads(1)
    target, operand = torch.ones(4), torch.ones(4)

    def loop() -> None:
        for _ in range(count):
            target.add_(operand)

    return _added(loop, WAYS, rounds, count)


def per_module_op(count: int, rounds: int) -> dict[str, float]:
    """The same of an op in a TorchScript module, where there is a module hierarchy to record."""
    torch.set_num_threads(1)
    model = torch.jit.script(nn.Sequential(nn.ReLU())).eval()
    operand = torch.ones(4)

    def loop() -> None:
        for _ in range(count):
            model(operand)

    with torch.no_grad():
        for _ in range(20):
            model(operand)
        return _added(loop, ("modules", "kineto modules"), rounds, count)


def per_step(model: str, steps: int, rounds: int) -> dict[str, float]:
    """Ns that each way adds to a training step, and `off`: of the step itself."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    step = _MODELS[model]()
    for _ in range(20):
        step()

    def loop() -> None:
        for _ in range(steps):
            step()

    return _added(loop, ("observer", "observer shapes", "kineto", "kineto shapes"), rounds, steps)


def stop_pause(ops: int) -> dict[str, float]:
    """Seconds: the job's longest op while a capture of so many ops was stopped, its median op, and the stop itself."""
    torch.set_num_threads(1)
    target, operand = torch.ones(4), torch.ones(4)
    loaded = _observer()
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
    torch.autograd._disable_profiler()
    return {"stop": time.perf_counter() - begin}


# --- ways of recording ---


@contextlib.contextmanager
def _observed(wanted: int) -> Iterator[None]:
    _recorder.arm(arena_bytes=ARENA_BYTES, sources=OPS)
    _recorder.populate()
    loaded = _observer()
    loaded.start(wanted)
    try:
        yield
    finally:
        loaded.stop()
        _recorder.disarm()
        dropped = _recorder.totals()["arena_full"]
        _release()
    if dropped:
        raise RuntimeError(f"{dropped} events did not fit the arena: the loop is too long for this measurement")


@contextlib.contextmanager
def _kineto(**options: Any) -> Iterator[None]:
    profiler = torch.autograd.profiler.profile(use_kineto=True, **options)
    profiler.__enter__()
    try:
        yield
    finally:
        torch.autograd._disable_profiler()
        torch.autograd.profiler._is_profiler_enabled = False


def _all_threads() -> Any:
    return torch._C._profiler._ExperimentalConfig(profile_all_threads=True)


_WAYS: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
    "observer": lambda: _observed(0),
    "observer shapes": lambda: _observed(INPUTS),
    "modules": lambda: _observed(INPUTS | MODULES),
    "kineto": _kineto,
    "kineto shapes": lambda: _kineto(record_shapes=True),
    "kineto modules": lambda: _kineto(record_shapes=True, with_stack=True, with_modules=True),
    "kineto all threads": lambda: _kineto(experimental_config=_all_threads()),
}
WAYS = ("observer", "observer shapes", "kineto", "kineto shapes", "kineto all threads")


def _added(loop: Work, ways: tuple[str, ...], rounds: int, count: int) -> dict[str, float]:
    added: dict[str, list[float]] = {way: [] for way in ways}
    plain = [_cpu_ns(loop) / count for _ in range(3)]
    for _ in range(rounds):
        for way in ways:
            before = _cpu_ns(loop)
            with _WAYS[way]():
                loop()  # what making room has pushed out of the caches comes back
                during = _cpu_ns(loop)
            after = _cpu_ns(loop)
            added[way].append((during - (before + after) / 2) / count)
            plain.append(before / count)
    return {"off": statistics.median(plain), **{way: statistics.median(found) for way, found in added.items()}}


def _cpu_ns(loop: Work) -> int:
    begin = time.thread_time_ns()
    loop()
    return time.thread_time_ns() - begin


def _observer() -> observer.Observer:
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
    return _training(nn.Sequential(*layers), torch.randn(128, 512))


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
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


_MODELS: dict[str, Callable[[], Work]] = {
    "tiny MLP": _tiny_mlp,
    "small transformer": _transformer,
    "larger MLP": _larger_mlp,
}
