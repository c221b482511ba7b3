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

class ChromeWriter:
    """Formats stored columns as Chrome trace records; releases the GIL while it does."""

    def __init__(self, base_ns: int) -> None:
        """`base_ns`: Unix time that becomes 0."""
    def set_tracks(self, processes: list[str], threads: list[str], thread_process: list[int]) -> None:
        """Ids as JSON tokens (empty: none) by track number, and the process of each thread."""
    def add_strings(self, dictionary: str, values: list[str], json: bool) -> None:
        """The next entries of a dictionary; of an argument it is called `type:key`. `json`: they are tokens."""
    def write_events(
        self,
        rows: int,
        columns: dict[str, npt.NDArray[Any]],
        args: list[tuple[str, str, npt.NDArray[np.int64], npt.NDArray[Any]]],
        first: int,
        last: int,
    ) -> bytes:
        """Rows from `first` up to `last`, args as (key, type, rows, values). ValueError if lengths differ."""
    def write_flows(self, rows: int, columns: dict[str, npt.NDArray[Any]]) -> bytes:
        """Flow records; `enclosing` as uint8."""

class ChunkReader:
    """Reads the bodies of event chunks (docs/wire-format.md); releases the GIL while it does.

    Every chunk is given to `index` first, all chunks of a trace; those that it took then to `add`, in any order.
    The arguments beside the body are what its header says: `space` numbers the (incarnation, epoch),
    `start` is the Unix ns of the base time.
    """

    def __init__(self, *, dictionary_bytes: int, open_events: int, tracks: int) -> None: ...
    def index(
        self,
        space: int,
        pid: int,
        stream: int,
        sequence: int,
        tid: int,
        thread_name: int,
        id_base: int,
        start: int,
        slots: int,
        events: int,
        body: bytes,
        /,
    ) -> tuple[int, bool] | None:
        """Keep what other chunks need of this one: texts, and ends of events. None: it is malformed.

        (no row that `add` makes of it starts before this Unix ns, whether any was open when recording began)
        """
    def add(
        self,
        space: int,
        pid: int,
        stream: int,
        sequence: int,
        tid: int,
        thread_name: int,
        id_base: int,
        start: int,
        slots: int,
        events: int,
        body: bytes,
        /,
    ) -> bool:
        """Add its events to the rows. False: it is malformed, and none was added."""
    def take(self) -> dict[str, Any]:
        """The rows since the last call: columns, args, and the strings, threads and names that are new with them."""
    @property
    def rows(self) -> int:
        """Rows that the next `take` gives."""
    @property
    def tensors(self) -> int:
        """Entries of the list columns that it gives with them."""
    @property
    def unmatched_ends(self) -> int:
        """Ends that no event has taken so far."""
    @property
    def lost(self) -> dict[str, int]:
        """What the chunks themselves say was lost, by reason."""
    @property
    def counted(self) -> dict[str, int]:
        """Anomalies, by name."""

def wire_fields(
    data: npt.NDArray[np.uint8], first: int, last: int, wanted: int, limit: int
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], int, bool]:
    """Fields of the protobuf message in [first, last) whose number has a bit in `wanted`, in order.

    (number, wire type, value, length, fault, full): the value of a length-delimited field is where
    it begins; `fault` is the byte where the message ends to be one, or -1; `full`: there are more
    than `limit`. The last field before a fault may be cut short. IndexError: no such range.
    """

def xspace_events(
    data: npt.NDArray[np.uint8],
    first: int,
    last: int,
    base_ns: int,
    *,
    events: int,
    stats: int,
    event_stats: int,
    stat_columns: int,
) -> dict[str, Any]:
    """Events of an XLine between two bytes of it as columns, at most `events`, stopping after `stats` stats.

    `start` and `end` in ns, `base_ns` added; `start_ps`, `end_ps`: None where all are 0; `metadata`: place in
    `metadata_ids`; `stats`: (id, type, rows, values, distinct, whether a row has several) for each id and type, where
    of a text or ref the values are places in `distinct`, and a text's entry there its place in `texts`; `lost` by
    reason; `next`: where to go on. See native/scan/xspace_events.h. IndexError: no such range.
    """
