"""Traces of chunks stored while they are decoded, against the same ones sorted through a spill file and in memory."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Generator
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from profd.collate.collator import Collator
from profd.decode.batch import Batch
from profd.decode.chunks import ChunkDecoder
from profd.events import COLUMNS
from profd.importing import pipeline
from profd.segments.meta import read_meta
from profd.segments.reader import TraceReader

from tests.support import chunk_cases as cases
from tests.support import chunk_twin as twin
from tests.support.encoding import encoded
from tests.unit.profd.importing.test_pipeline import store


@st.composite
def recordings(draw: Any) -> bytes:
    """The chunks of some programs of one thread each, one after the other in any order."""
    found = []
    for program in range(draw(st.integers(1, 6))):
        moved = draw(st.sampled_from((0, 3, -200, 70_000))) + program * draw(st.sampled_from((0, 10**7)))
        for header, body in twin.split(encoded(*draw(cases.chunks()), incarnation=program)):
            times = {"base": header["base"] + moved, "real": header["real"] + moved}
            found.append(twin.pack({**header, **times}, body))
    return b"".join(draw(st.permutations(found)))


class Unsettled(ChunkDecoder):
    """Says of nothing that it is settled."""

    def batches(self) -> Generator[Batch]:
        for batch in super().batches():
            batch.settled = None
            yield batch


def stored(folder: Path, path: Path, segment_rows: int) -> dict[str, Any]:
    """All that a stored trace says, whatever its segments."""
    with mock.patch.object(pipeline, "Collator", partial(Collator, segment_rows=segment_rows)):
        result = store(folder, ("chunks", path))
    reader = TraceReader(folder)
    table = reader.read(None)
    found: dict[str, Any] = {name: table.column(name).tolist() for name in COLUMNS}
    for name, spec in COLUMNS.items():
        if spec.dictionary is not None and spec.dictionary in reader.dictionaries:
            names: list[str | None] = [*reader.dictionaries[spec.dictionary].values, None]
            found[name] = [names[code] for code in found[name]]
    for key, arg in table.args.items():
        words = None if arg.dictionary is None else arg.dictionary.values
        found[str(key)] = [
            (row, value if words is None else words[value])
            for row, value in zip(arg.rows.tolist(), arg.values.tolist(), strict=True)
        ]
    meta = read_meta(folder)
    told = ("anomalies", "lost", "warnings", "start_ns", "end_ns", "events", "launches", "truncated")
    found |= {name: result[name] for name in told} | {"tracks": meta.tracks, "clock_error_ns": meta.clock_error_ns}
    shutil.rmtree(folder)
    return {name: repr(values) for name, values in found.items()}  # NaN is never equal


@settings(max_examples=10, deadline=None)
@given(recordings(), st.integers(5, 25), st.integers(1, 10))
def test_property_it_is_the_same_trace_however_it_was_sorted(
    tmp_path_factory: Any, recording: bytes, segment_rows: int, batch_rows: int
) -> None:
    assume(recording)
    folder = tmp_path_factory.mktemp("traces")
    path = folder / "recording.pfc"
    path.write_bytes(recording)
    with mock.patch("profd.decode.chunks.BATCH_ROWS", batch_rows):
        whole = stored(folder / "whole", path, 1 << 18)
        # Of more that start together than a segment holds, the longest are no longer put first.
        starts = Counter(whole["start"].strip("[]").split(", "))
        assume(max(starts.values()) <= segment_rows)
        assert stored(folder / "settled", path, segment_rows) == whole
        with mock.patch("profd.decode.open.ChunkDecoder", Unsettled):
            assert stored(folder / "spilled", path, segment_rows) == whole
