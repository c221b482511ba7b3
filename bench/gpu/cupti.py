"""CUPTI through ctypes, one part at a time: what a part leaves behind is told by a session that had no other.

Its buffers come from Python, which takes the GIL: good for a loop that releases it in each launch, and for no other.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from ctypes import byref, c_size_t, c_uint, c_uint8, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench.gpu.corpus import mapped_cupti

# CUpti_ActivityKind, as in native/gpu/cupti_abi.h
RUNTIME, DRIVER = 5, 4
KERNEL, MEMCPY, MEMCPY_PEER, MEMSET = 10, 1, 22, 2
SYNCHRONIZATION, OVERHEAD, EXTERNAL = 38, 17, 39
DEVICE = (KERNEL, MEMCPY, MEMCPY_PEER, MEMSET)
ALL = (RUNTIME, DRIVER, *DEVICE, SYNCHRONIZATION, OVERHEAD, EXTERNAL)
_DOMAINS = (1, 2)  # driver, runtime
_EVERY_DOMAIN = range(1, 6)
_CUSTOM2 = 5
_FORCED = 1
_BUFFER_BYTES = 8 << 20

_Requested = ctypes.CFUNCTYPE(None, ctypes.POINTER(c_void_p), ctypes.POINTER(c_size_t), ctypes.POINTER(c_size_t))
_Completed = ctypes.CFUNCTYPE(None, c_void_p, c_uint32, c_void_p, c_size_t, c_size_t)


class CuptiError(Exception):
    """A call of CUPTI failed; str() names it and its error."""


@dataclass(frozen=True, slots=True)
class Part:
    """What a session has of CUPTI, and the order of its end (a key of ENDS)."""

    kinds: tuple[int, ...] = ()
    domains: bool = False  # callbacks for each call of the driver and of the runtime
    subscribed: bool = True
    end: str = "as_ours"


class Session:
    """A recording of one part. Raises CuptiError, OSError without a libcupti."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.bytes = 0  # of records
        self._requested = self._completed = 0  # buffers
        self._library = ctypes.CDLL(os.environ.get("PROFD_CUPTI_LIBRARY") or mapped_cupti())
        self._subscriber = c_void_p()
        self._buffers: list[Any] = []  # CUPTI may write into one as long as the process lives
        self._callbacks = (_Requested(self._request), _Completed(self._complete))

    def begin(self) -> None:
        """Subscribe and turn the part on."""
        for _, call in self.beginning():
            call()

    def beginning(self) -> list[tuple[str, Callable[[], None]]]:
        """The calls that subscribe and turn the part on, in order, by name."""
        calls: list[tuple[str, Callable[[], None]]] = []
        if self.part.subscribed:
            calls.append(("subscribe", self._subscribe))
        if self.part.domains:
            calls.append(("domains", lambda: self._domains(_DOMAINS, 1)))
        if self.part.kinds:
            calls.append(("register", lambda: self._call("cuptiActivityRegisterCallbacks", *self._callbacks)))
        for kind in self.part.kinds:
            calls.append((f"enable {kind}", partial(self._call, "cuptiActivityEnable", c_uint(kind))))
        return calls

    def ending(self) -> list[tuple[str, Callable[[], None]]]:
        """The calls that turn it off and unsubscribe, in the order of our collector, by name."""
        calls: list[tuple[str, Callable[[], None]]] = []
        for kind in self.part.kinds:
            calls.append((f"disable {kind}", partial(self._call, "cuptiActivityDisable", c_uint(kind))))
        if self.part.kinds:
            calls.append(("flush", self.flush))
        return [*calls, ("unsubscribe", self.unsubscribe)]

    def pushed(self, step: Callable[[], float]) -> Callable[[], float]:
        """The step with an external id around it, where the part has these."""
        if EXTERNAL not in self.part.kinds:
            return step

        def enclosed() -> float:
            self._call("cuptiActivityPushExternalCorrelationId", c_uint(_CUSTOM2), c_uint64(1))
            took = step()
            self._call("cuptiActivityPopExternalCorrelationId", c_uint(_CUSTOM2), byref(c_uint64()))
            return took

        return enclosed

    def finish(self) -> None:
        """Turn it off again. The devices have nothing to do."""
        if self.part.domains:
            self._domains(_DOMAINS, 0)
        ENDS[self.part.end](self)

    def disable(self, kinds: tuple[int, ...]) -> None:
        """Kinds off, in this order."""
        for kind in kinds:
            self._call("cuptiActivityDisable", c_uint(kind))

    def flush(self) -> None:
        """As our collector: what is complete, and then the rest."""
        self._call("cuptiActivityFlushAll", c_uint(0))
        self._call("cuptiActivityFlushAll", c_uint(_FORCED))

    def _subscribe(self) -> None:
        # Any function of C that takes no arguments: what Python would cost is not asked.
        nothing = ctypes.cast(ctypes.CDLL(None).getppid, c_void_p)
        self._call("cuptiSubscribe", byref(self._subscriber), nothing, None)

    def flush_complete(self) -> None:
        """Have the buffers whose records are complete handed over."""
        self._call("cuptiActivityFlushAll", c_uint(0))

    @property
    def buffers_out(self) -> int:
        """That CUPTI has."""
        return self._requested - self._completed

    def unsubscribe(self) -> None:
        """If it has subscribed."""
        if self.part.subscribed:
            self._call("cuptiUnsubscribe", self._subscriber)

    def every_domain_off(self) -> None:
        """Whatever CUPTI may have turned on by itself."""
        self._domains(_EVERY_DOMAIN, 0)

    def finalize(self) -> None:
        """CUPTI leaves the process, outside of any call of CUDA."""
        self._call("cuptiFinalize")

    def _domains(self, domains: Any, on: int) -> None:
        for domain in domains:
            self._call("cuptiEnableDomain", c_uint(on), self._subscriber, c_uint(domain))

    def _call(self, name: str, *arguments: Any) -> None:
        if error := getattr(self._library, name)(*arguments):
            raise CuptiError(f"{name} failed with CUPTI error {error}")

    def _request(self, buffer: Any, size: Any, records: Any) -> None:
        self._requested += 1
        self._buffers.append((c_uint8 * _BUFFER_BYTES)())
        buffer[0], size[0], records[0] = ctypes.addressof(self._buffers[-1]), _BUFFER_BYTES, 0

    def _complete(self, _context: Any, _stream: int, _buffer: int, _size: int, valid: int) -> None:
        self.bytes += valid
        self._completed += 1


def _as_ours(session: Session) -> None:
    session.disable(session.part.kinds)
    if session.part.kinds:
        session.flush()
    session.unsubscribe()


def _reversed(session: Session) -> None:
    session.disable(session.part.kinds[::-1])
    session.flush()
    session.unsubscribe()


def _unsubscribe_first(session: Session) -> None:
    session.unsubscribe()
    session.disable(session.part.kinds)
    session.flush()


def _flush_first(session: Session) -> None:
    session.flush()
    session.disable(session.part.kinds)
    session.unsubscribe()


def _no_flush(session: Session) -> None:
    session.disable(session.part.kinds)
    session.unsubscribe()


def _domains_off(session: Session) -> None:
    session.disable(session.part.kinds)
    session.flush()
    session.every_domain_off()
    session.unsubscribe()


def _finalize(session: Session) -> None:
    _as_ours(session)
    session.finalize()


ENDS: dict[str, Callable[[Session], None]] = {
    "as_ours": _as_ours,
    "reversed": _reversed,
    "unsubscribe_first": _unsubscribe_first,
    "flush_first": _flush_first,
    "no_flush": _no_flush,
    "domains_off": _domains_off,
    "finalize": _finalize,
}
