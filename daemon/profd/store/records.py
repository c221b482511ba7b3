"""Durable records: one JSON file each, written whole. The catalog is only an index of them."""

from __future__ import annotations

import contextlib
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from profd.disk.files import disk, read_bounded, sync, write_atomic
from profd.errors import BadInput, NotFound
from profd.limits import RECORD_BYTES_MAX

_NAME: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,127}")

log = logging.getLogger("profd.store")


class Records:
    """A directory of `<name>.json`. Every write is synced before it returns; blocking."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        with disk(directory, "Creating"):
            directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            directory.mkdir(mode=0o700, exist_ok=True)

    def put(self, name: str, record: dict[str, Any]) -> None:
        """Write or replace one. Exhausted when the disk refuses it, BadInput when it is too large."""
        data = json.dumps(record, separators=(",", ":")).encode("ascii")
        if len(data) > RECORD_BYTES_MAX:
            raise BadInput(f"record {name} has {len(data)} bytes, {RECORD_BYTES_MAX} are allowed")
        path = self._path(name)
        with disk(path):
            write_atomic(path, data)

    def get(self, name: str) -> dict[str, Any]:
        """One of them. NotFound if there is none, BadInput if it is damaged."""
        path = self._path(name)
        try:
            value = json.loads(read_bounded(path, RECORD_BYTES_MAX))
        except (ValueError, RecursionError) as error:
            raise BadInput(f"{path} is damaged ({error}): remove it, or restore it from a backup") from error
        if not isinstance(value, dict):
            raise BadInput(f"{path} is damaged (not a JSON object): remove it, or restore it from a backup")
        return value

    def size(self, name: str) -> int:
        """Bytes of one on the disk; 0 if there is none."""
        try:
            return self._path(name).stat().st_size
        except FileNotFoundError:
            return 0

    def remove(self, *names: str) -> None:
        """Forget these, with one sync; a name that is not there is no error, and takes none."""
        gone = False
        for path in map(self._path, names):
            with disk(path, "Removing"), contextlib.suppress(FileNotFoundError):
                path.unlink()
                gone = True
        if gone:
            with disk(self._directory, "Removing"):
                sync(self._directory)

    def names(self) -> list[str]:
        """All names, sorted."""
        with disk(self._directory, "Reading"):
            stems = [path.stem for path in self._directory.iterdir() if path.suffix == ".json"]
        return sorted(stem for stem in stems if _NAME.fullmatch(stem))

    def items(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """All that can be read; damaged ones are logged and left where they are."""
        for name in self.names():
            try:
                yield name, self.get(name)
            except NotFound:
                continue
            except BadInput as error:
                log.error("record left out", extra={"record": name, "why": str(error)})

    def sweep(self) -> None:
        """Remove what interrupted writes left behind."""
        with disk(self._directory, "Reading"):
            leftovers = [path for path in self._directory.iterdir() if path.name.startswith(".")]
        for path in leftovers:
            with disk(path, "Removing"):
                path.unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise BadInput(f"{name!r} is no name of a record")
        return self._directory / f"{name}.json"
