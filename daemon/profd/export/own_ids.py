"""Ids of a Chrome trace that mean something in all of a file: of several traces in one each gets its own.

Viewers put the records of an asynchronous event together by category and id, whatever their processes, and those of a
flow by its id alone.
"""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np

from profd.events import ArgColumn, Dictionary, EventTable, Tracks
from profd.events.table import Array

_ASYNC, _SECOND, _FLOW, _END_PID = "@id", "@id2", "@bind_id", "@end.pid"
_OF_A_PROCESS: Final = "local"  # the member of id2 that means something in its process alone
_SECOND_ID: Final = '{"id2": '  # how the id of a flow begins that is an id2


class OwnIds:
    """Of all traces of a file."""

    def __init__(self) -> None:
        self._traces = 0
        self._numbers = 0  # of flows, so far

    def of_next_trace(self, own: Tracks, shown: Tracks) -> TraceIds:
        """Numbers of one more trace. `own` and `shown`: its tracks, as it has them and as the file does."""
        self._traces += 1
        pairs = zip(own.processes, shown.processes, strict=True)
        pids = {json.dumps(one["id"]): json.dumps(two["id"]) for one, two in pairs}
        return TraceIds(self, self._traces, pids)

    def number(self) -> int:
        """One that no flow has yet: viewers read text as a hexadecimal number."""
        self._numbers += 1
        return self._numbers


class TraceIds:
    """Of one trace."""

    def __init__(self, file: OwnIds, place: int, pids: dict[str, str]) -> None:
        self._file = file
        self._place = place
        self._pids = pids
        self._flows: dict[str, str] = {}
        self._words: dict[str, Dictionary] = {}

    def apply(self, table: EventTable) -> None:
        """Change the ids among the arguments of a table."""
        for key, change in ((_ASYNC, self._own), (_SECOND, self._second), (_FLOW, self._flow), (_END_PID, self._pid)):
            columns = [(kind, table.args.pop((key, kind))) for name, kind in list(table.args) if name == key]
            if not columns:
                continue
            rows = np.concatenate([arg.rows for _, arg in columns])
            tokens = [change(token) for kind, arg in columns for token in _tokens(kind, arg)]
            words = self._words.setdefault(key, Dictionary())
            codes = np.array(words.codes(tokens), dtype=np.int32)
            order = np.argsort(rows, kind="stable")
            table.args[key, "json"] = ArgColumn("json", rows[order], codes[order], words)

    def flows(self, tokens: list[str]) -> list[str]:
        """The ids of flow records."""
        return [self._flow_record(token) for token in tokens]

    def _flow_record(self, token: str) -> str:
        if not token.startswith(_SECOND_ID):
            return self._flow(token)
        return f"{_SECOND_ID}{self._second(token[len(_SECOND_ID) : -1])}}}"

    def _flow(self, token: str) -> str:
        # To viewers 7 and "7" are one.
        text = token.strip('"')
        known = self._flows.get(text)
        if known is None:
            known = self._flows[text] = str(self._file.number())
        return known

    def _own(self, token: str) -> str:
        return json.dumps(f"{self._place}:{_text(token)}")

    def _second(self, token: str) -> str:
        members = _parsed(token)
        if not isinstance(members, dict):
            return token
        return json.dumps(
            {key: value if key == _OF_A_PROCESS else f"{self._place}:{value}" for key, value in members.items()}
        )

    def _pid(self, token: str) -> str:
        return self._pids.get(token, token)


def _tokens(kind: str, arg: ArgColumn) -> list[str]:
    """The values as JSON."""
    values: Array = arg.values
    if arg.dictionary is None:
        return [json.dumps(value) for value in values.tolist()]
    words = arg.dictionary.values if kind == "json" else [json.dumps(word) for word in arg.dictionary.values]
    return [words[code] for code in values.tolist()]


def _text(token: str) -> str:
    value = _parsed(token)
    return value if isinstance(value, str) else token


def _parsed(token: str) -> Any:
    try:
        return json.loads(token)
    except (ValueError, RecursionError):
        return None
