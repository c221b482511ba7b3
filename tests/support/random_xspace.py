"""XSpaces by chance: steps, loops of TensorFlow, launches and links on a host, kernels on a device, and on TPUs ops."""

from __future__ import annotations

import random
from typing import Any, Final

from profproto.xspace import xplane_pb2

OPERATORS: Final = (
    "a/b/mul:Mul", "a/b/add:Add", "a/c/mul:Mul", "mul:Mul", "jit(f)/x/sin:", "no operator", "p/q:r", "a//b:Op", "a/b:",
    "x/y/dot_general:dot_general[x]", ":Mul", "a/b/mul_1:",
    "Iterator::Batch::Map", "MEMCPYHtoD", "x/jit(g):", "x/Dense:", ":", "x/Mul_2:", "x/y:int[3]", "a b/mul:Mul",
    "-a/m:M",
)  # fmt: skip
XLA_OPS: Final = ("while.1::f.1", "while.1::f.2", "copy.3", "a::b::c")
SCOPES: Final = 9
UNSIGNED: Final = ("cuda_graph_id", "cuda_graph_exec_id")
NS: Final = 1000  # ps


class Writer:
    """Events with stats by name. Strings become refs."""

    def __init__(self, plane: xplane_pb2.XPlane) -> None:
        self.plane = plane
        self._stats: dict[str, int] = {}
        self._names: dict[str, int] = {}

    def line(self, number: int, name: str) -> xplane_pb2.XLine:
        return self.plane.lines.add(id=number, name=name)

    def event(self, line: xplane_pb2.XLine, name: str, start: int, lasts: int, **stats: Any) -> None:
        number = self._names.setdefault(name, len(self._names) + 1)
        self.plane.event_metadata[number].id, self.plane.event_metadata[number].name = number, name
        event = line.events.add(metadata_id=number, offset_ps=start, duration_ps=lasts)
        for key, value in stats.items():
            if isinstance(value, str):
                event.stats.add(metadata_id=self._stat(key), ref_value=self._stat(value))
            elif key in UNSIGNED:
                event.stats.add(metadata_id=self._stat(key), uint64_value=value)
            else:
                event.stats.add(metadata_id=self._stat(key), int64_value=value)

    def _stat(self, name: str) -> int:
        number = self._stats.setdefault(name, len(self._stats) + 1)
        self.plane.stat_metadata[number].id, self.plane.stat_metadata[number].name = number, name
        return number


def gpu_space(seed: int) -> bytes:
    """Some steps of a job with one GPU."""
    return _Gpu(random.Random(seed)).space()


class _Gpu:
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._space = xplane_pb2.XSpace()
        self._device = Writer(self._space.planes.add(id=1, name="/device:GPU:0"))
        self._host = Writer(self._space.planes.add(id=2, name="/host:CPU"))
        self._threads = [self._host.line(number, f"thread {number}") for number in (1, 2)]
        self._streams = [self._device.line(7, "Stream #7(Compute)"), self._device.line(8, "Stream #8(MemcpyH2D)")]
        self._free = {7: 0, 8: 0}  # when a stream is
        self._launched = 0

    def space(self) -> bytes:
        time, loops = 0, self._likely(0.4)
        for step in range(self._chance.randint(1, 5)):
            lasts = self._chance.randint(5, 40) * NS
            self._step(step, time, lasts)
            if loops:
                self._loop(step, time)
            self._links(step, time, lasts)
            for number in range(calls := self._chance.randint(0, 6)):
                self._launch(time + lasts * number // calls)
            time += lasts + self._chance.randint(0, 5 * NS)
        for line in self._threads:
            events = sorted(line.events, key=lambda event: (event.offset_ps, -event.duration_ps))
            del line.events[:]
            line.events.extend(events)
        if self._likely(0.5):
            self._scope_tree()
        return bytes(self._space.SerializeToString())

    def _likely(self, share: float) -> bool:
        return self._chance.random() < share

    def _some(self, share: float, **stats: Any) -> dict[str, Any]:
        return stats if self._likely(share) else {}

    def _step(self, step: int, time: int, lasts: int) -> None:
        if self._likely(0.8):
            level = self._chance.choice((1, 1, 1, 2))
            stats = {"_r": level} | self._some(0.8, step_num=step * 10) | self._some(0.2, graph_type="Graph")
            self._host.event(self._threads[0], self._chance.choice(("train", "eval")), time, lasts, **stats)

    def _loop(self, step: int, time: int) -> None:
        for turn in range(self._chance.randint(1, 3)):
            stats = {"id": step % 2, "iter_num": self._chance.randint(0, 3)}
            self._host.event(self._threads[1], "ExecutorState::Process", time + turn * 3000, 2500, **stats)
            if self._likely(0.3):
                self._host.event(self._threads[0], "IteratorGetNextOp::DoCompute", time + turn * 3000, 900, **stats)

    def _links(self, step: int, time: int, lasts: int) -> None:
        """From the thread of steps to the other one; now and then with several producers of one id."""
        if self._likely(0.5):
            number = step // self._chance.choice((1, 1, 2))
            self._host.event(self._threads[0], "produce", time + 1, 10, _pt=3, _p=number)
            self._host.event(self._threads[1], "consume", time + lasts // 3, lasts // 2, _ct=3, _c=number)

    def _launch(self, time: int) -> None:
        self._launched += 1
        name = self._chance.choice(("cudaLaunchKernel", "cuLaunchKernel", "launch"))
        stats = {"device_id": 0} | self._some(0.9, correlation_id=self._launched)
        self._host.event(self._chance.choice(self._threads), name, time, self._chance.randint(1, 1500), **stats)
        stream = self._chance.choice(self._streams)
        start = max(self._free[stream.id], time + 500) + self._chance.choice((0, 0, 100, 5000))
        lasts = self._chance.randint(1, 12) * 500
        self._free[stream.id] = start + lasts
        if self._likely(0.1):  # within the one before, or at once with it
            start -= self._chance.choice((0, 300))
        self._device.event(stream, self._chance.choice(("kA", "kB")), start, lasts, **self._kernel())

    def _kernel(self) -> dict[str, Any]:
        stats = self._some(0.9, correlation_id=self._launched) | self._some(0.9, kernel_details="regs:1")
        which = self._chance.random()
        if which < 0.5:
            stats["tf_op"] = self._chance.choice(OPERATORS)
        elif which < 0.9:
            stats |= self._some(0.95, hlo_module=self._chance.choice(("m1", "m2")))
            stats["hlo_op"] = self._chance.choice(XLA_OPS)
            stats |= self._some(0.7, program_id=self._chance.choice((1, 2)))
            stats |= self._some(0.4, scope_range_id=self._chance.randint(1, SCOPES))
            stats |= self._some(0.2, cuda_graph_id=self._chance.choice((0, 5, 6)))
        return stats | self._some(0.1, cuda_graph_exec_id=9)

    def _scope_tree(self) -> None:
        tree = self._space.planes.add(id=3, name="/host:__ScopeRangeCallStack__")
        for child in range(2, SCOPES + 1):
            if self._likely(0.6):
                tree.stats.add(metadata_id=child, int64_value=self._chance.randint(1, child - 1))


def tpu_space(seed: int) -> bytes:
    """Ops of one TPU core, with sources, some of them asynchronous."""
    chance = random.Random(seed)
    space = xplane_pb2.XSpace()
    device = Writer(space.planes.add(id=1, name="/device:TPU:0"))
    ops, time = device.line(3, "XLA Ops"), 0
    for number in range(chance.randint(1, 12)):
        lasts = chance.randint(1, 8) * NS
        stats: dict[str, Any] = {}
        if chance.random() < 0.8:
            stats["tf_op"] = chance.choice(OPERATORS)
        if chance.random() < 0.6:
            stats["source"] = chance.choice(("/x/model.py:12", "model.py:13"))
        if chance.random() < 0.2:
            stats["_a"] = chance.choice((0, 1))
        device.event(ops, f"fusion.{number % 3}", time, lasts, **stats)
        time += lasts + chance.choice((0, 0, 100, 30 * NS))
    return bytes(space.SerializeToString())
