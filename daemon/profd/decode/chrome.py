"""Chrome trace JSON, as Kineto and chrome://tracing write it, to EventTable batches.

The scanning is native (profd._scan); here its slices become Batches, and what
stands beside the events (base time, devices, metadata) gets its meaning.

Argument columns are named by their key, with these exceptions: `@key` is a
member of the event itself ("@id", "@s"), `@end.key` one of the event that ended
a pair, `@@key` an argument whose own name begins with '@', and `@extra` a JSON
object with arguments beyond limits.ARG_KEYS_MAX distinct keys. Well-known integer
arguments live in typed columns only (native/scan/chrome_args.cpp lists them).
"""

from __future__ import annotations

import decimal
import os
from collections.abc import Generator, Iterator
from typing import Any, BinaryIO, Final

import numpy as np

from profd import limits
from profd._scan import ChromeScanner
from profd.decode.batch import Batch, Decoder
from profd.decode.chrome_metadata import Metadata, loads, parse_id
from profd.decode.inflate import Slices
from profd.decode.shared import Numbers, SharedDictionary, SharedTracks
from profd.errors import BadTrace
from profd.events import NO_ROW, ArgColumn, DeviceType, Dictionary, EventTable, Flows, Tracks
from profd.segments.read_ahead import read_ahead

DICTIONARIES: Final = ("name", "cat", "stack", "module", "inputs", "flow_id")
_EVENT_CODES: Final = {name: name for name in ("name", "cat", "stack", "module", "inputs")}
_FLOW_CODES: Final = {"id": "flow_id", "category": "cat", "name": "name"}
# Small enough for text and columns to stay in the cache; measured a quarter faster than 16 MiB.
SLICE_BYTES: Final = min(4 * limits.MiB, limits.DECODE_SLICE_BYTES)

# What the names in deviceProperties give away (libkineto writes no vendor field).
_VENDORS: Final = (
    (("nvidia", "tesla", "quadro", "geforce", "a100", "h100", "v100"), DeviceType.CUDA),
    (("amd", "radeon", "instinct", "gfx"), DeviceType.HIP),
    (("intel",), DeviceType.XPU),
    (("mtia",), DeviceType.MTIA),
)


def _scanner(*, skip_events: bool = False) -> ChromeScanner:
    return ChromeScanner(
        event_bytes=limits.EVENT_BYTES_MAX,
        depth=limits.JSON_DEPTH_MAX,
        string_bytes=limits.STRING_BYTES_MAX,
        arg_keys=limits.ARG_KEYS_MAX,
        dictionary_bytes=limits.DICTIONARY_BYTES_MAX,
        tracks=limits.TRACKS_MAX,
        open_rows=limits.OPEN_EVENTS_MAX,
        skip_events=skip_events,
    )


class ChromeDecoder(Decoder):
    """Decodes one file.

    All times are Unix ns: the file's base (`baseTimeNanoseconds`, 0 if it has none)
    is known before the first batch, wherever in the file it stands; afterwards it
    is `base_ns`.
    """

    def __init__(
        self,
        file: BinaryIO,
        dictionaries: dict[str, Dictionary] | None = None,
        tracks: Tracks | None = None,
        slice_bytes: int = SLICE_BYTES,
    ) -> None:
        super().__init__(file, dictionaries, tracks)
        self.base_ns = 0
        self.events = 0  # rows yielded so far
        self._slice_bytes = slice_bytes
        self._begun = False
        self._scanner = _scanner()
        self._codes = {
            name: SharedDictionary(self.dictionaries.setdefault(name, Dictionary())) for name in DICTIONARIES
        }
        self._arg_dictionaries: dict[int, Dictionary] = {}
        self._shared_tracks = SharedTracks(self.tracks)
        self._processes, self._threads = Numbers(), Numbers()
        self._metadata = Metadata(self._shared_tracks)
        self._flows = 0

    @property
    def position(self) -> int:
        """Bytes of the file read so far, compressed ones if it is: for progress."""
        return self._file.tell()

    def batches(self) -> Generator[Batch]:
        """Yield a batch per slice that holds events or flows. Raises BadTrace if nothing is readable."""
        slices, problem = Slices(self._file, self._slice_bytes), ""
        for piece, known in self._pieces(slices):
            problem = known
            self._scanner.feed(piece, False)
            if self._scanner.held:
                self._begin()
            yield from self._take()
            if self._scanner.fault or self._scanner.done:
                break
        else:
            problem = slices.problem
        self._scanner.feed(b"", True)
        if self._scanner.held:  # the file ends with the bracket that opens the events
            self._begin()
        yield from self._take()
        self._conclude(problem)

    def _pieces(self, slices: Slices) -> Iterator[tuple[bytes | memoryview, str]]:
        """The slices, each with the problem known by then.

        From where the events begin each is read and inflated while the one before is scanned. Not earlier:
        `_look_ahead` needs the file for itself.
        """
        pieces = ((piece, slices.problem) for piece in slices)
        for piece in pieces:
            yield piece
            if self._begun:
                break
        yield from read_ahead(pieces)

    def _begin(self) -> None:
        """Set base and accelerator from what stands before the events, or from all of the file."""
        self._keep(self._scanner.take())
        members = self.findings.top_level
        if "baseTimeNanoseconds" not in members:
            members = members | self._look_ahead()
        self.base_ns = base_ns_of(members.get("baseTimeNanoseconds"))
        self._scanner.begin(self.base_ns, accelerator_of(members.get("deviceProperties")))
        self._begun = True

    def _look_ahead(self) -> dict[str, Any]:
        """Read the top-level members of the whole file, passing over the events (about 1 GB/s)."""
        position = self._file.tell()
        scanner = _scanner(skip_events=True)
        members: dict[str, Any] = {}
        for piece in Slices(self._file, self._slice_bytes):
            scanner.feed(piece, False)
            members.update((key, loads(text)) for key, text in scanner.take()["members"])
            if scanner.fault or scanner.done:
                break
        self._file.seek(position)
        return members

    def _keep(self, taken: dict[str, Any]) -> None:
        """Take over new strings, tracks, metadata and top-level members."""
        for name, values in taken["strings"].items():
            self._codes[name].extend_distinct(values)
        for number, values in taken["arg_strings"]:
            self._arg_dictionaries.setdefault(number, Dictionary()).extend(values)
        tracks = self._shared_tracks
        self._processes.extend([tracks.process(parse_id(text)) for text in taken["processes"]])
        self._threads.extend(
            [tracks.thread(self._processes[process], parse_id(text)) for process, text in taken["threads"]]
        )
        for text in taken["metadata"]:
            self._metadata.add(text)
        for key, text in taken["members"]:
            self.findings.top_level[key] = loads(text)

    def _take(self) -> Iterator[Batch]:
        taken = self._scanner.take()
        self._keep(taken)
        args = {
            (key, kind): ArgColumn(kind, rows, values, self._arg_dictionaries.get(number))
            for number, key, kind, rows, values in taken["args"]
        }
        events = EventTable(self._map(taken["columns"], _EVENT_CODES), self.dictionaries, args)
        flows = self._map(taken["flows"], _FLOW_CODES)
        count = len(flows["id"])
        if not len(events) and not count:
            return
        flows["enclosing"] = flows["enclosing"].astype(bool)
        self.events += len(events)
        self._flows += count
        unbound = np.full(count, NO_ROW, dtype=np.int64)
        yield Batch(events, Flows(**flows, row=unbound) if count else None)

    def _map(self, columns: dict[str, Any], dictionaries: dict[str, str]) -> dict[str, Any]:
        """Turn the scanner's codes and track numbers into those of the trace, in place."""
        for column, dictionary in dictionaries.items():
            if column in columns:
                columns[column] = self._codes[dictionary].map(columns[column])
        for column, numbers in (("process", self._processes), ("thread", self._threads)):
            if column in columns:
                columns[column] = numbers.map(columns[column])
        return columns

    def _conclude(self, problem: str) -> None:
        scanner, findings = self._scanner, self.findings
        findings.lost = scanner.lost
        findings.counted = scanner.counted
        self._metadata.resolve()
        for name, count in self._metadata.counted.items():
            findings.count(name, count)
        why = problem or scanner.fault
        if not why:
            findings.warnings += _warnings(findings.counted)
            return
        where = f"byte {scanner.offset}"
        if problem:
            sentence = f"{problem}; JSON was readable up to {where}"
        elif scanner.truncated:
            sentence = f"the trace file ends too soon, at {where}"
        else:
            sentence = f"not JSON at {where}: {scanner.fault}"
        if not self.events and not self._flows:
            raise BadTrace(f"{sentence}; no event before it could be read", scanner.offset)
        findings.truncated = f"{sentence}; {self.events} events before it are kept"
        findings.warnings += _warnings(findings.counted)


def _warnings(counted: dict[str, int]) -> list[str]:
    sentences = {
        "trailing_bytes": "bytes after the end of the JSON text were ignored",
        "top_level_dropped": "{n} top-level members beyond the size limit were dropped",
        "metadata_dropped": "{n} metadata records beyond the size limit were dropped",
        "flow_members_dropped": "{n} flow records had arguments or members that are not kept",
        "too_many_open": "{n} events have no end: too many were open at once to wait for theirs",
    }
    return [text.format(n=counted[name]) for name, text in sentences.items() if counted.get(name)]


def base_ns_of(value: Any) -> int:
    """`baseTimeNanoseconds` as Unix ns, whatever JSON type it came as; 0 where it is unusable."""
    try:
        base = decimal.Decimal(str(value)) if value is not None else decimal.Decimal(0)
        # Before it becomes an integer: "1e300000000" would take minutes to write out.
        return int(base) if -(1 << 62) < base < 1 << 62 else 0
    except (decimal.InvalidOperation, OverflowError, ValueError):
        return 0


def accelerator_of(properties: Any) -> DeviceType:
    """The kind of device in `deviceProperties`; OTHER where it names none."""
    devices = properties if isinstance(properties, list) else []
    names = " ".join(str(device.get("name", "")) for device in devices if isinstance(device, dict)).lower()
    for words, device_type in _VENDORS:
        if any(word in names for word in words):
            return device_type
    return DeviceType.OTHER


def open_chrome(
    file: BinaryIO | int,
    size: int = -1,
    dictionaries: dict[str, Dictionary] | None = None,
    tracks: Tracks | None = None,
) -> ChromeDecoder:
    """A decoder for a Chrome trace, plain or gzip, in a seekable file or descriptor (which stays open).

    It adds to `dictionaries` and `tracks` where they are given: those of a trace with
    several inputs. `size` is the file's size where the caller knows it; a file beyond
    limits.TRACE_FILE_BYTES_MAX is refused with BadTrace.
    """
    # The decoder outlives this call; the descriptor stays the caller's.
    opened = open(file, "rb", closefd=False) if isinstance(file, int) else file  # noqa: SIM115
    actual = size if size >= 0 else opened.seek(0, os.SEEK_END)
    if actual > limits.TRACE_FILE_BYTES_MAX:
        raise BadTrace(f"the trace file has {actual} bytes, more than {limits.TRACE_FILE_BYTES_MAX}; split it")
    return ChromeDecoder(opened, dictionaries, tracks)
