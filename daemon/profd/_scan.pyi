"""Untrusted bytes to columns; native. Runs only in workers."""

from typing import Any

import numpy as np
import numpy.typing as npt

class ChromeScanner:
    """Scans Chrome trace JSON fed in slices; releases the GIL while it does.

    `{"traceEvents": [...]}` pauses before its first event (`held`) until `begin`;
    a bare array does not. `skip_events` only reads the other top-level members.
    """

    def __init__(
        self,
        *,
        event_bytes: int,
        depth: int,
        string_bytes: int,
        arg_keys: int,
        dictionary_bytes: int,
        tracks: int,
        open_rows: int,
        skip_events: bool = False,
    ) -> None: ...
    def feed(self, slice: bytes | bytearray | memoryview | npt.NDArray[np.uint8], final: bool) -> None:  # noqa: A002
        """Scan a slice as far as it goes; `final`: it is the last one."""
    def begin(self, base_ns: int, accelerator: int) -> None:
        """Go on after the pause. `base_ns`: Unix time of the file's zero; `accelerator`: a DeviceType, 0 unknown."""
    def take(self) -> dict[str, Any]:
        """What was scanned since the last call: columns, flows, args, new strings, tracks and members."""
    @property
    def held(self) -> bool:
        """Waiting for `begin`."""
    @property
    def done(self) -> bool:
        """The closing bracket has been read."""
    @property
    def fault(self) -> str:
        """Why scanning stopped early; empty if it did not."""
    @property
    def truncated(self) -> bool:
        """The fault is that the input ends too soon."""
    @property
    def offset(self) -> int:
        """Byte of the (inflated) input where the scanner stands."""
    @property
    def rows(self) -> int:
        """Rows that the next `take` gives."""
    @property
    def lost(self) -> dict[str, int]:
        """Records that became no row, by reason."""
    @property
    def counted(self) -> dict[str, int]:
        """Anomalies, by name."""
