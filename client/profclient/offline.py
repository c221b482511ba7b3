"""A store without a daemon: the reading commands through `python -m profd.offline`.

The engine runs in a process of its own: this one stays light, and a trace that
brings the engine down takes only that process with it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from profclient.errors import (
    BusyError,
    ClientError,
    DeniedError,
    NotFoundError,
    UsageError,
)
from profclient.traces import Answer, is_capture, readable

PIECE_BYTES = 512 * 1024

_BY_CODE: dict[int, type[ClientError]] = {
    kind.exit_code: kind for kind in (UsageError, NotFoundError, DeniedError, BusyError)
}


class OfflineTraces:
    """Traces of a store directory; see `profclient.traces.Traces` for the methods."""

    def __init__(self, store: Path) -> None:
        if importlib.util.find_spec("profd") is None:
            raise UsageError(
                "reading a store needs the engine: run pip install '.[daemon]' in a clone of profd's repository."
            )
        self._store = store
        self._asked: set[subprocess.Popen[bytes]] = set()  # questions that are being answered
        self._stopped = False

    def stop(self) -> None:
        """Give up the questions that are being answered and all that begin later, from any thread."""
        self._stopped = True
        for process in list(self._asked):
            process.kill()

    def newest(self, limit: int) -> list[dict[str, Any]]:
        """The newest traces first."""
        return list(self._answered("list", limit=limit))

    def get(self, trace: str) -> dict[str, Any]:
        """One trace. Raises NotFoundError."""
        return dict(self._answered("get", id=trace))

    def ask(self, question: str, trace: str, **arguments: Any) -> Answer:
        """A question with its arguments by name."""
        given = {name: value for name, value in arguments.items() if value is not None}
        return Answer(self._pieces(question, **{"capture" if is_capture(trace) else "id": trace}, **given))

    def import_file(self, path: Path, dialect: str = "", capture: str = "") -> dict[str, Any]:
        """Store a file from elsewhere. Raises UsageError where it cannot be read here."""
        return dict(self._answered("import", path=str(readable(path).resolve()), dialect=dialect, capture=capture))

    def pin(self, trace: str, pinned: bool) -> dict[str, Any]:
        """Keep it, or no longer."""
        return dict(self._answered("pin" if pinned else "unpin", id=trace))

    def share(self, trace: str, users: Iterable[str]) -> dict[str, Any]:
        """Readers beside its owner; none of them takes all back."""
        return dict(self._answered("share", id=trace, **{"with": list(users)}))

    def delete(self, trace: str) -> str:
        """Delete it; its id."""
        return str(self._answered("rm", id=trace)["id"])

    def evictions(self, size: int) -> dict[str, Any]:
        """Traces that would go if a trace of this many bytes were stored now."""
        return dict(self._answered("evictions", bytes=size))

    def files(self, trace: str, check: bool) -> list[dict[str, Any]]:
        """The files with the events of a trace or a capture: rank, host, trace, path. `check`: compare their sums."""
        return list(self._answered("files", **{"capture" if is_capture(trace) else "id": trace}, check=check))

    def rebuild(self) -> dict[str, Any]:
        """Make the catalog anew: {"traces": count, "damaged": [sentence, …]}."""
        return dict(self._answered("rebuild"))

    def upgrade(self) -> dict[str, Any]:
        """Write traces of earlier formats anew: {"anew": [id, …], "others": count, "damaged": [sentence, …]}."""
        return dict(self._answered("upgrade"))

    def _command(self, verb: str) -> list[str]:
        # -P: nothing is imported from the directory that the command is run in, which may be another user's.
        return [sys.executable, "-P", "-m", "profd.offline", verb, "--store", str(self._store)]

    def _answered(self, verb: str, **request: Any) -> Any:
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
            self._asked.add(process)
            if self._stopped:
                process.kill()
            try:
                with suppress(BrokenPipeError):  # it has ended already, and says why
                    process.stdin.write(json.dumps(request).encode())
                    process.stdin.close()
                while piece := os.read(process.stdout.fileno(), PIECE_BYTES):
                    yield piece
                said = process.stderr.read()
            except GeneratorExit:
                process.kill()  # the reader has had enough
                raise
            finally:
                self._asked.discard(process)
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
