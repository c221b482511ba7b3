"""A program whose work on the GPU is known exactly: `work` does it and says what it was."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ctypes import c_uint, c_uint64, c_void_p
from dataclasses import asdict, dataclass
from typing import Any

from bench.gpu.driver import Driver

THREADS = 2
STREAMS = 3  # of each thread
LAUNCHES = 100  # of each stream
ELEMENTS = 4096
GRAPH_NODES = 50
GRAPH_LAUNCHES = 4
COPIES_TO = COPIES_BACK = 10
COPIES_WITHIN = 5
FILLS = 5
UNIT = 4096  # the n-th copy of a kind has n of these

ADD, NODE = "profd_truth_add", "profd_truth_node"  # each adds 1 to every element

# For any GPU since Maxwell: the driver translates it.
_KERNEL = """
.visible .entry {name}(.param .u64 where, .param .u32 count)
{{
  .reg .pred %p<2>;
  .reg .f32 %f<3>;
  .reg .b32 %r<6>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [where];
  ld.param.u32 %r2, [count];
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %ctaid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.s32 %r1, %r4, %r3, %r5;
  setp.ge.s32 %p1, %r1, %r2;
  @%p1 bra DONE;
  cvta.to.global.u64 %rd2, %rd1;
  mul.wide.s32 %rd3, %r1, 4;
  add.s64 %rd4, %rd2, %rd3;
  ld.global.f32 %f1, [%rd4];
  add.f32 %f2, %f1, 0f3F800000;
  st.global.f32 [%rd4], %f2;
DONE:
  ret;
}}
"""
PTX = ".version 6.0\n.target sm_50\n.address_size 64\n" + _KERNEL.format(name=ADD) + _KERNEL.format(name=NODE)


@dataclass(frozen=True, slots=True)
class Truth:
    """What the program does, in the words of CUPTI's records."""

    kernels: dict[str, int]  # by name
    streams: int  # on which ADD ran
    copies: dict[str, tuple[int, int]]  # HtoD, DtoH, DtoD -> count, bytes
    fills: tuple[int, int]  # count, bytes
    graph_launches: int

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def truth() -> Truth:
    """Known without doing it."""

    def sizes(count: int) -> tuple[int, int]:
        return count, UNIT * count * (count + 1) // 2

    return Truth(
        kernels={ADD: THREADS * STREAMS * LAUNCHES, NODE: GRAPH_NODES * GRAPH_LAUNCHES},
        streams=THREADS * STREAMS,
        copies={"HtoD": sizes(COPIES_TO), "DtoH": sizes(COPIES_BACK), "DtoD": sizes(COPIES_WITHIN)},
        fills=sizes(FILLS),
        graph_launches=GRAPH_LAUNCHES,
    )


class Program:
    """Prepared, so that `work` does nothing but what is counted."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self._add, self._node = driver.function(PTX, ADD, NODE)
        self._streams = [[driver.stream() for _ in range(STREAMS)] for _ in range(THREADS)]
        self._arrays = [[self._zeros() for _ in range(STREAMS)] for _ in range(THREADS)]
        self._room = UNIT * max(COPIES_TO, COPIES_BACK, COPIES_WITHIN, FILLS)
        self._one, self._other = driver.memory(self._room), driver.memory(self._room)
        self._graph_stream, self._graph_array = driver.stream(), self._zeros()
        self._graph = self._captured(self._graph_stream, self._graph_array)

    def work(self) -> Truth:
        """Do it. Raises DriverError."""
        with ThreadPoolExecutor(THREADS) as threads:
            for done in [threads.submit(self._launches, number) for number in range(THREADS)]:
                done.result()
        self._copy_and_fill()
        for _ in range(GRAPH_LAUNCHES):
            self.driver.call("cuGraphLaunch", self._graph, self._graph_stream)
        self.driver.synchronize()
        return truth()

    def graph(self, launches: int) -> Callable[[], bool]:
        """Make another graph. Returns a function that launches it so often and says whether it computed all of that."""
        stream, array = self.driver.stream(), self._zeros()
        graph = self._captured(stream, array)

        def launch() -> bool:
            before = self._first(array)
            for _ in range(launches):
                self.driver.call("cuGraphLaunch", graph, stream)
            self.driver.synchronize()
            return self._first(array) - before == launches * GRAPH_NODES

        return launch

    def computed(self) -> tuple[float, float]:
        """An element of an array of `work`'s launches, and of its graph's: how often 1 was added."""
        return self._first(self._arrays[0][0]), self._first(self._graph_array)

    def _captured(self, stream: c_void_p, array: c_uint64) -> c_void_p:
        with self.driver.captured(stream) as graph:
            for _ in range(GRAPH_NODES):
                self._launch(self._node, stream, array)
        self.driver.synchronize()
        return graph

    def _launches(self, number: int) -> None:
        self.driver.use()
        for _ in range(LAUNCHES):
            for stream, array in zip(self._streams[number], self._arrays[number], strict=True):
                self._launch(self._add, stream, array)
        for stream in self._streams[number]:
            self.driver.call("cuStreamSynchronize", stream)

    def _copy_and_fill(self) -> None:
        host = ctypes.create_string_buffer(self._room)
        stream = self._graph_stream
        call = self.driver.call
        for size in _sizes(COPIES_TO):
            call("cuMemcpyHtoDAsync_v2", self._one, host, size, stream)
        for size in _sizes(COPIES_BACK):
            call("cuMemcpyDtoHAsync_v2", host, self._one, size, stream)
        for size in _sizes(COPIES_WITHIN):
            call("cuMemcpyDtoDAsync_v2", self._other, self._one, size, stream)
        for size in _sizes(FILLS):
            call("cuMemsetD8Async", self._other, ctypes.c_ubyte(7), size, stream)
        self.driver.synchronize()

    def _launch(self, kernel: c_void_p, stream: c_void_p, array: c_uint64) -> None:
        self.driver.launch(kernel, ELEMENTS // 256, 256, stream, array, c_uint(ELEMENTS))

    def _zeros(self) -> c_uint64:
        array = self.driver.memory(4 * ELEMENTS)
        self.driver.call("cuMemsetD8_v2", array, ctypes.c_ubyte(0), ctypes.c_size_t(4 * ELEMENTS))
        return array

    def _first(self, array: c_uint64) -> float:
        value = ctypes.c_float()
        self.driver.call("cuMemcpyDtoH_v2", ctypes.byref(value), array, ctypes.c_size_t(4))
        return value.value


def _sizes(count: int) -> list[ctypes.c_size_t]:
    return [ctypes.c_size_t(UNIT * (number + 1)) for number in range(count)]
