"""What the daemon asks of the kernel, where Python would wait or be too slow (native/host)."""

from typing import Protocol

class _Rates(Protocol):
    """Of tokens: how many a second, and how many at once after a pause."""

    @property
    def streams(self) -> float: ...
    @property
    def streams_burst(self) -> float: ...
    @property
    def work(self) -> float: ...
    @property
    def work_burst(self) -> float: ...

class _Limits(Protocol):
    """See native/host/door.h."""

    @property
    def each(self) -> int: ...
    @property
    def host(self) -> int: ...
    @property
    def answered_each(self) -> int: ...
    @property
    def answered_host(self) -> int: ...
    @property
    def begin_seconds(self) -> float: ...
    @property
    def end_seconds(self) -> float: ...
    @property
    def user(self) -> _Rates: ...
    @property
    def all(self) -> _Rates: ...

class Door:
    """A thread that accepts connections for gRPC, counts them by user, and carries their bytes."""

    def __init__(self, server: str, limits: _Limits, user_refusal: bytes, host_refusal: bytes) -> None:
        """`server`: path of gRPC's socket. The others: header blocks of the answer to calls beyond a limit.

        Raises OSError, ValueError.
        """

    def listen(self, listener: int) -> None:
        """Accept on a copy of this listening socket from now on, and on none before. Raises OSError."""

    def refuse(self) -> None:
        """Accept no more; connections go on."""

    def close(self, seconds: float) -> None:
        """Carry what is on its way for so long at most, then end every connection and the thread. Waits for it."""

    def counts(self) -> dict[str, int]:
        """Connections `open`, and since the beginning `refused`, `throttled`, `foreign`; `refused_uid` was the last."""

class FrameReader:
    """What the door makes of what a client sends."""

    def feed(self, piece: bytes) -> list[tuple[int, int, int, int]]:
        """Frames whose header ends in this piece: length, type, flags, stream. Raises ValueError: it is no HTTP/2."""
