"""Bundles to EventTable batches: the columns as they were stored, checked, and everything computed left to us.

A bundle is a file from anywhere. Its archive is verified (profd.segments.bundle),
what can be out of range is looked at here, and the tree and the links are
built anew like those of any other input.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

from profd import limits
from profd.decode.batch import Batch, Decoder
from profd.decode.bundle_meta import checked_tracks, provenance_of
from profd.decode.shared import Numbers
from profd.disk.files import disk
from profd.errors import BadTrace
from profd.events import NO_END, NO_ROW, DeviceType, Dictionary, EventTable, Flows, Kind, Tracks
from profd.events.table import Array
from profd.segments.bundle import DERIVED, unpack
from profd.segments.meta import segment_file
from profd.segments.reader import TraceReader
from profd.segments.segment import Codes, open_parquet, reading

# What decoders give rows; it is written into exports as it is.
_PHASES: Final = np.isin(np.arange(256), list(b"\0XBbneiICP"))
_FLOW_PHASES: Final = np.isin(np.arange(256), list(b"stf"))


class BundleDecoder(Decoder):
    """Decodes one bundle.

    `scratch` is where the archive is unpacked while batches are read; None: the temporary directory.
    """

    def __init__(
        self, file: BinaryIO, dictionaries: dict[str, Dictionary], tracks: Tracks, scratch: Path | None
    ) -> None:
        super().__init__(file, dictionaries, tracks)
        self._scratch = scratch
        self._checked: dict[str, int] = {}  # how many words of a dictionary were looked at

    def batches(self) -> Generator[Batch]:
        """Yield a batch per stored segment. BadTrace where the bundle is not as it was packed."""
        scratch = Path(tempfile.mkdtemp(prefix="bundle-", dir=self._scratch))
        folder = scratch / "bundle"  # what errors call it
        try:
            with disk(scratch):
                folder.mkdir()
                unpack(self._file, folder)
            yield from self._decode(_Reader(folder, self.dictionaries))
        except (TypeError, AttributeError, OverflowError) as error:
            # Of a Parquet file whose columns are of other types than ours.
            raise _wrong(str(error)) from error
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _decode(self, reader: TraceReader) -> Iterator[Batch]:
        _check_segments(reader)
        processes, threads = checked_tracks(reader.meta.tracks, self.tracks)
        origin = provenance_of(reader.meta)
        self.findings.origin = origin
        self.findings.top_level = {
            key: reader.meta.top_level[key] for key in reader.meta.top_level if key != "traceEvents"
        }
        self.findings.warnings = origin.warnings
        self.findings.truncated = origin.truncated
        self.findings.clock_error_ns = origin.clock_error_ns
        flows: Flows | None = self._flows(reader, threads)
        for table in reader.iterate():
            yield Batch(self._table(table, processes, threads), flows)
            flows = None

    def _flows(self, reader: TraceReader, threads: Numbers) -> Flows:
        flows = reader.flows()
        if not bool(_FLOW_PHASES[flows.phase].all()):
            raise _wrong("a flow record has an unknown phase")
        self._check_words("flow_id")
        columns = {name: getattr(flows, name) for name in Flows.__dataclass_fields__}
        columns["thread"] = _mapped(flows.thread, threads)
        columns["row"] = np.full(len(flows.id), NO_ROW, dtype=np.int64)
        return Flows(**columns)

    def _table(self, table: EventTable, processes: Numbers, threads: Numbers) -> EventTable:
        columns = {name: values for name, values in table.columns.items() if name not in DERIVED}
        start, end = columns["start"], table.column("end")
        if bool((start == NO_END).any()):
            raise _wrong("an event has no time")
        early = (end != NO_END) & (end < start)
        if bool(early.any()):
            columns["end"] = np.where(early, start, end)
            self.findings.count("end_before_start", int(early.sum()))
        if int(table.column("kind").max(initial=0)) > max(Kind):
            raise _wrong("an event is of an unknown kind")
        if int(table.column("device_type").max(initial=0)) > max(DeviceType):
            raise _wrong("an event is of an unknown kind of device")
        if not bool(_PHASES[table.column("phase")].all()):
            raise _wrong("an event has an unknown phase")
        columns["process"] = _mapped(table.column("process"), processes)
        columns["thread"] = _mapped(table.column("thread"), threads)
        if "end_thread" in columns:
            columns["end_thread"] = _mapped(columns["end_thread"], threads)
        self._check_words("inputs")
        for (key, kind), arg in table.args.items():
            if kind == "json" and arg.dictionary is not None:
                self._check_json(f"{kind}:{key}", arg.dictionary, objects=key == "@extra")
        return EventTable(columns, self.dictionaries, table.args, table.first_row)

    def _check_words(self, name: str) -> None:
        if name in self.dictionaries:
            self._check_json(name, self.dictionaries[name], objects=name == "inputs")

    def _check_json(self, name: str, dictionary: Dictionary, *, objects: bool) -> None:
        """Exports write these texts as they are: what is no JSON would break the whole file."""
        for word in dictionary.values[self._checked.get(name, 0) :]:
            try:
                value = json.loads(word, parse_constant=_no_constant)
            except (ValueError, RecursionError) as error:
                raise _wrong(f"an argument is no JSON ({error})") from error
            if objects and not isinstance(value, dict):
                raise _wrong("arguments are no JSON object")
        self._checked[name] = len(dictionary)


class _Reader(TraceReader):
    """Reads codes in the dictionaries of the trace that is being made."""

    def __init__(self, directory: Path, dictionaries: dict[str, Dictionary]) -> None:
        super().__init__(directory)
        self._codes = Codes(dictionaries)


def _check_segments(reader: TraceReader) -> None:
    """The segments follow one another, and each fits into a worker."""
    meta, row = reader.meta, 0
    if len(meta.args) > 4 * (limits.ARG_KEYS_MAX + 1):
        raise _wrong(f"it has {len(meta.args)} argument columns")
    for number, info in enumerate(meta.segments):
        if info.file != segment_file(number) or info.first_row != row:
            raise _wrong(f"{info.file} is not the next segment")
        if not 0 < info.rows <= limits.BUNDLE_SEGMENT_ROWS_MAX:
            raise _wrong(f"{info.file} has {info.rows} rows")
        row += info.rows
        path = reader.directory / info.file
        with reading(path):
            stored = open_parquet(path).metadata
            sizes = [stored.row_group(group).total_byte_size for group in range(stored.num_row_groups)]
        if min(sizes, default=0) < 0 or sum(sizes) > limits.BUNDLE_SEGMENT_BYTES_MAX:
            raise _wrong(f"{info.file} takes {sum(sizes)} bytes in memory")
    if row != meta.events:
        raise _wrong(f"it has {row} events instead of {meta.events}")


def _mapped(own: Array, shared: Numbers) -> Array:
    if len(own) and (int(own.min()) < NO_ROW or int(own.max()) >= len(shared)):
        raise _wrong("an event lies on a track that there is not")
    return shared.map(own)


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


def _wrong(what: str) -> BadTrace:
    return BadTrace(f"the bundle is no trace of profd: {what}; have it exported again")
