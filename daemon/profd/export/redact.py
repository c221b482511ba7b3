"""Words that stay at home when a trace leaves the house: `--redact paths,values,names`.

A reader of the trace that never shows it, so that every export made through it
is redacted. Words are replaced by keyed hashes with a key that is thrown away:
equal words stay equal within one export, and nobody can try out guesses.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Collection
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from profd.events import NO_CODE, Dictionary, EventTable, Kind, Tracks
from profd.events.table import ArgColumn
from profd.model.remembered import Remembered
from profd.model.run_times import RunTimes
from profd.query import rules
from profd.segments import plain_json
from profd.segments.columns import CODED_ARGS
from profd.segments.meta import TraceMeta
from profd.segments.reader import TraceReader

PATHS: Final = "paths"  # files and directories, wherever they stand
VALUES: Final = "values"  # arguments of events, Concrete Inputs, the command line
NAMES: Final = "names"  # user annotations, Python functions and modules

_CODED: Final = ("name", "cat", "stack", "module", "inputs", "flow_id")
_NAMED_KINDS: Final = (Kind.USER_ANNOTATION, Kind.GPU_USER_ANNOTATION, Kind.PYTHON_FUNCTION, Kind.SAMPLE)
# PyTorch's own ranges: without them nobody finds the steps.
_PUBLIC_NAME: Final = re.compile(r"ProfilerStep#\d+|Optimizer\.(?:step|zero_grad)#\w+\.(?:step|zero_grad)")
_SHAPE_KEYS: Final = ("Input Dims", "Input type", "Input Strides")
_PUBLIC_TOP_LEVEL: Final = ("schemaVersion", "baseTimeNanoseconds", "displayTimeUnit", "deviceProperties")
# Members that say which records of an asynchronous span belong together.
_PAIRING_ARGS: Final = ("@id", "@id2", "@scope")

_FRAME: Final = re.compile(r"(?P<file>.+)\((?P<line>\d{1,9})\): (?P<function>.+)", re.DOTALL)
_WHOLE_PATH: Final = re.compile(r"\s*(?:~?/|\.{1,2}/|[A-Za-z]:[\\/]|\\\\|file:).*", re.DOTALL)
# A name may have a million characters: each is looked at a few times, not once for every place a path could begin at.
_RUN: Final = re.compile(r"[^\s\"'()<>,;=\[\]{}|]+")
_FILE: Final = re.compile(r"[\w.+-]+")
_OF_A_FILE: Final = re.compile(
    r"\.(?:py|pyc|pyx|so|c|cc|cpp|cu|cuh|h|hpp|json|pt|pth|ckpt|safetensors|bin|csv|parquet|ya?ml|toml|txt|sh)\b"
)
_EXTENSION: Final = re.compile(r"\.[A-Za-z0-9]{1,11}\Z")


class RedactedReader(TraceReader):
    """A stored trace without what is not to be seen."""

    def __init__(self, directory: Path, redact: Collection[str], secret: bytes | None = None) -> None:
        """`secret`: of the hashes, where several traces are to have the same; None: one of its own."""
        super().__init__(directory)
        self._words = _Words(frozenset(redact), secret)
        self._values = VALUES in redact
        self._names = NAMES in redact
        self._public: dict[int, int] = {}  # code of a name -> code of what is shown
        for name in _CODED:
            self._codes.columns[name] = _Redacted(self._words.of(name))
        for key, kind in self.meta.args:
            if kind in CODED_ARGS:
                self._codes.args[key, kind] = _Redacted(self._words.json if kind == "json" else self._words.plain)
        self.meta = self._words.meta(self.meta)

    def _needed(self, columns: Collection[str] | None) -> Collection[str] | None:
        return columns if columns is None else {*columns, "kind"}

    def _shown(self, table: EventTable) -> EventTable:
        if self._values:
            table.args = _without_values(table)
        if self._names and "name" in table.columns:
            self._hide_names(table)
        return table

    def _hide_names(self, table: EventTable) -> None:
        codes = table.columns["name"]
        rows = np.flatnonzero(rules.is_kind(table.columns["kind"], *_NAMED_KINDS) & (codes != NO_CODE))
        dictionary = table.dictionaries["name"]
        used = np.unique(codes[rows])
        for code in used.tolist():
            if code not in self._public:
                self._public[code] = dictionary.code(self._words.name(dictionary.values[code]))
        shown = np.array([self._public[code] for code in used.tolist()], dtype=np.int32)
        changed = codes.copy()
        changed[rows] = shown[np.searchsorted(used, codes[rows])]
        table.columns["name"] = changed


class _Redacted(Dictionary):
    """Takes up what a function makes of the words it is given."""

    def __init__(self, change: Callable[[str], str]) -> None:
        self._change = change
        self._changed: dict[str, str] = {}
        super().__init__()

    def codes(self, values: list[str]) -> list[int]:
        """The codes of what they become."""
        changed = self._changed
        for value in values:
            if value not in changed:
                changed[value] = self._change(value)
        return super().codes([changed[value] for value in values])


class _Words:
    """Replaces words."""

    def __init__(self, redact: frozenset[str], secret: bytes | None = None) -> None:
        self._key = secret or secrets.token_bytes(16)
        self._paths = PATHS in redact
        self._values = VALUES in redact
        self._names = NAMES in redact

    def of(self, dictionary: str) -> Callable[[str], str]:
        """The words of a dictionary, redacted."""
        special: dict[str, Callable[[str], str]] = {
            "stack": self.stack,
            "module": self.module,
            "inputs": self.inputs,
            "flow_id": str,
        }
        return special.get(dictionary, self.plain)

    def plain(self, text: str) -> str:
        """Any text: paths in it."""
        if not self._paths:
            return text
        frame = _FRAME.fullmatch(text)
        if frame is not None:
            return f"{self._path(frame['file'])}({frame['line']}): {frame['function']}"
        if _WHOLE_PATH.fullmatch(text):
            return self._path(text)
        return _RUN.sub(lambda found: self._without_paths(found[0]), text)

    def _without_paths(self, run: str) -> str:
        """A part of a text in which no path ends."""
        return self._path(run) if "/" in run or "\\" in run else _FILE.sub(self._file, run)

    def _file(self, found: re.Match[str]) -> str:
        """A word; up to its last extension it is a file, if anything stands before that."""
        word = found[0]
        end = max((each.end() for each in _OF_A_FILE.finditer(word) if each.start()), default=0)
        return self._path(word[:end]) + word[end:] if end else word

    def name(self, text: str) -> str:
        """The name of an annotation or a function; its path is dealt with already."""
        frame = _FRAME.fullmatch(text)
        if frame is not None:
            return f"{frame['file']}({frame['line']}): {self._hash('function', frame['function'])}"
        return text if _PUBLIC_NAME.fullmatch(text) else self._hash("name", text)

    def stack(self, text: str) -> str:
        """Frames joined by ';'."""
        frames = [self.plain(frame) for frame in text.split(";")]
        return ";".join([self.name(frame) for frame in frames] if self._names else frames)

    def module(self, text: str) -> str:
        """A module hierarchy."""
        return self._hash("module", text) if self._names else self.plain(text)

    def inputs(self, text: str) -> str:
        """The JSON object of shapes, types and Concrete Inputs."""
        if self._values:
            members = _parsed(text)
            kept = members if isinstance(members, dict) else {}
            text = json.dumps({key: kept[key] for key in _SHAPE_KEYS if key in kept})
        return self.json(text)

    def json(self, text: str) -> str:
        """A JSON text: paths in its strings."""
        return json.dumps(self.deep(_parsed(text))) if self._paths else text

    def deep(self, value: Any) -> Any:
        """A JSON value: paths in its strings and keys."""
        if isinstance(value, str):
            return self.plain(value)
        if isinstance(value, dict):
            return {self.plain(str(key)): self.deep(item) for key, item in value.items()}
        return [self.deep(item) for item in value] if isinstance(value, list) else value

    def meta(self, meta: TraceMeta) -> TraceMeta:
        """A trace's word about itself, without users and places."""
        top_level = meta.top_level
        if self._values:
            top_level = {key: top_level[key] for key in _PUBLIC_TOP_LEVEL if key in top_level}
        processes = meta.tracks.processes
        if self._values:
            processes = [{key: track[key] for key in track if key != "metadata"} for track in processes]
        return msgspec.structs.replace(
            meta,
            owner="",
            owner_uid=-1,
            host="",
            job="",
            title="" if self._values else self.plain(meta.title),
            options={} if self._values else self.deep(meta.options),
            not_honoured=self.deep(meta.not_honoured),
            warnings=self.deep(meta.warnings),
            truncated=self.plain(meta.truncated),
            top_level=self.deep(top_level),
            tracks=Tracks(self.deep(processes), self.deep(meta.tracks.threads)),
            gpu=self.deep(meta.gpu),
            versions=self.deep(meta.versions),
            run_times=self._run_times(meta.run_times),
            remembered=self._remembered(meta.remembered),
            args=[key for key in meta.args if not self._values or key[1] not in CODED_ARGS or key[0] in _PAIRING_ARGS],
        )

    def _run_times(self, times: RunTimes) -> RunTimes:
        """A program names its threads as it likes."""
        threads = [replace(thread, name=self.plain(thread.name)) for thread in times.threads]
        return replace(times, threads=threads, names=self.deep(times.names))

    def _remembered(self, remembered: Remembered) -> Remembered:
        """Groups of collectives are arguments of events elsewhere."""
        if self._values:
            return Remembered()
        return Remembered([replace(call, group=self.plain(call.group)) for call in remembered.calls])

    def _path(self, text: str) -> str:
        extension = _EXTENSION.search(text)
        return self._hash("path", text) + (extension[0] if extension else "")

    def _hash(self, what: str, text: str) -> str:
        digest = blake2b(text.encode("utf-8", "surrogatepass"), key=self._key, digest_size=6)
        return f"{what}-{digest.hexdigest()}"


def _parsed(text: str) -> Any:
    try:
        return plain_json.loads(text)
    except (ValueError, RecursionError):
        return None


def _without_values(table: EventTable) -> dict[tuple[str, str], ArgColumn]:
    """A counter is nothing without its numbers; of everything else no argument stays."""
    counters = rules.is_kind(table.columns["kind"], Kind.COUNTER)
    kept = {}
    for (key, kind), arg in table.args.items():
        if key in _PAIRING_ARGS:
            kept[key, kind] = arg
        elif kind not in CODED_ARGS:
            where = np.flatnonzero(counters[arg.rows])
            if len(where):
                kept[key, kind] = ArgColumn(kind, arg.rows[where], arg.values[where])
    return kept
