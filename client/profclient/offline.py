"""A store without a daemon: the reading commands through `python -m profd.offline`.

The engine runs in a process of its own: this one stays light, and a trace that
brings the engine down takes only that process with it.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from profclient.errors import (
    BusyError,
    ClientError,
    DeniedError,
    NotFoundError,
    UsageError,
)
from profclient.traces import readable

PIECE_BYTES = 512 * 1024

_BY_CODE: dict[int, type[ClientError]] = {
    kind.exit_code: kind for kind in (UsageError, NotFoundError, DeniedError, BusyError)
}


class OfflineTraces:
    """Traces of a store directory; see `profclient.traces.Traces` for the methods."""

    def __init__(self, store: Path) -> None:
        if not store.is_dir():
            raise NotFoundError(f"there is no store at {store}.")
        if importlib.util.find_spec("profd") is None:
            raise UsageError("reading a store needs the engine: pip install 'profd[daemon]'.")
        self._store = store

    def newest(self, limit: int) -> list[dict[str, Any]]:
        """The newest traces first."""
        return list(self._ask("list", limit=limit))

    def get(self, trace: str) -> dict[str, Any]:
        """One trace. Raises NotFoundError."""
        return dict(self._ask("get", id=trace))

    def summary(self, trace: str) -> dict[str, Any]:
        """The summary with the trace under "trace"."""
        return dict(self._ask("summary", id=trace))

    def top(self, trace: str, **query: Any) -> list[dict[str, Any]]:
        """Rows of key averages."""
        return list(self._ask("top", id=trace, **query))

    def tree(self, trace: str, max_depth: int, from_row: int | None) -> Iterator[bytes]:
        """JSON lines in pieces."""
        return self._pieces("tree", id=trace, max_depth=max_depth, from_row=from_row)

    def export(self, trace: str, **query: Any) -> Iterator[bytes]:
        """The exported bytes in pieces."""
        return self._pieces("export", id=trace, **query)

    def steps(self, trace: str) -> dict[str, Any]:
        """The steps one by one."""
        return dict(self._ask("steps", id=trace))

    def gpu(self, trace: str) -> dict[str, Any]:
        """What the devices did."""
        return dict(self._ask("gpu", id=trace))

    def timeline(self, trace: str, lines: Sequence[str], rules: str = "") -> Iterator[bytes]:
        """Derived lines as JSON lines in pieces."""
        return self._pieces("timeline", id=trace, lines=list(lines), rules=rules)

    def diff(self, trace: str, other: str, by: str) -> dict[str, Any]:
        """What became of `trace` in `other`."""
        return dict(self._ask("diff", id=trace, other=other, by=by))

    def sql(self, trace: str, text: str, limit: int) -> dict[str, Any]:
        """The answer to a question in SQL."""
        return dict(self._ask("sql", id=trace, sql=text, limit=limit))

    def import_file(self, path: Path, dialect: str = "") -> dict[str, Any]:
        """Store a file from elsewhere. Raises UsageError where it cannot be read here."""
        return dict(self._ask("import", path=str(readable(path).resolve()), dialect=dialect))

    def pin(self, trace: str, pinned: bool) -> dict[str, Any]:
        """Keep it, or no longer."""
        return dict(self._ask("pin" if pinned else "unpin", id=trace))

    def share(self, trace: str, users: Iterable[str]) -> dict[str, Any]:
        """Readers beside its owner; none of them takes all back."""
        return dict(self._ask("share", id=trace, **{"with": list(users)}))

    def delete(self, trace: str) -> str:
        """Delete it; its id."""
        return str(self._ask("rm", id=trace)["id"])

    def evictions(self, size: int) -> dict[str, Any]:
        """What would go were a trace of this many bytes stored now."""
        return dict(self._ask("evictions", bytes=size))

    def rebuild(self) -> dict[str, Any]:
        """Make the catalog anew: {"traces": count, "damaged": [sentence, …]}."""
        return dict(self._ask("rebuild"))

    def _command(self, verb: str) -> list[str]:
        return [sys.executable, "-m", "profd.offline", verb, "--store", str(self._store)]

    def _ask(self, verb: str, **request: Any) -> Any:
        done = subprocess.run(self._command(verb), input=json.dumps(request).encode(), capture_output=True, check=False)
        if done.returncode:
            raise _error(done.returncode, done.stderr)
        return json.loads(done.stdout)

    def _pieces(self, verb: str, **request: Any) -> Iterator[bytes]:
        with subprocess.Popen(
            self._command(verb), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            if process.stdin is None or process.stdout is None or process.stderr is None:
                raise ClientError("the engine could not be started")
            try:
                process.stdin.write(json.dumps(request).encode())
                process.stdin.close()
                while piece := process.stdout.read(PIECE_BYTES):
                    yield piece
                said = process.stderr.read()
            except GeneratorExit:
                process.kill()  # the reader has had enough
                raise
        if process.returncode:
            raise _error(process.returncode, said)


def _error(code: int, said: bytes) -> ClientError:
    """The engine's own sentence; its last line where it said none."""
    lines = said.decode(errors="replace").strip().splitlines() or [f"the engine ended with exit code {code}"]
    try:
        sentence = str(json.loads(lines[-1])["error"])
    except (ValueError, KeyError, TypeError):
        sentence = lines[-1]
    return _BY_CODE.get(code, ClientError)(sentence)
