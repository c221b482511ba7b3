"""Paths of modules: `Sequential_0.Linear_1` from frames, `C.A0` from TorchScript's module hierarchy.

Frames of imported traces carry a class and a counter, not the attribute a
module is stored in; TorchScript names attributes, and only its top by class.
Frames of our tracer carry the module's name in its model (`named_modules()`),
which follows the model's own: `Model_0.layers.3.attn.q_proj`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import numpy as np

from profd.derive.ancestors import nearest
from profd.events import NO_ROW, EventTable, Kind
from profd.events.table import Array

MODULE_FRAME: Final = "nn.Module: "
PATH_CHARS_MAX: Final = 4096  # of one path; what is longer shows its end
# `instance(Class)::method` of each frame; free functions (`::f`, `CALL_FUNCTION::f`) have no class.
_HIERARCHY_FRAME: Final = re.compile(r"(?:^|\.)([^.()]*)\(([^()]*)\)::")
_UNKNOWN: Final = "INSTANCE_NAME_UNKNOWN"


def path_of_hierarchy(text: str) -> str:
    """`TOP(C)::forward.A0(A)::forward.SELF(A)::helper.` is `C.A0`."""
    path: list[str] = []
    for instance, class_name in _HIERARCHY_FRAME.findall(text):
        if instance == "TOP" and not path:
            path.append(class_name)
        elif instance == _UNKNOWN:
            path.append(f"?({class_name})")
        elif instance not in ("", "SELF"):
            path.append(instance)
    return _joined(path)


def path_of_stack(stack: str) -> str:
    """The modules among the frames of a recorded call stack, which is innermost first."""
    frames = [frame.removeprefix(MODULE_FRAME) for frame in stack.split(";") if frame.startswith(MODULE_FRAME)]
    return _joined(frames[::-1])


def _joined(path: list[str]) -> str:
    return ".".join(part for part in path if part)[-PATH_CHARS_MAX:]


def module_paths(table: EventTable, parent: Array) -> tuple[Array, list[str]]:
    """(code of each row, paths): a row's path is `paths[code]`, "" where it is in no module.

    `parent` is the innermost row around each on its thread. A recorded hierarchy
    counts first, then the frames around the row, then its recorded stack.
    """
    texts: dict[str, int] = {"": 0}
    recorded = _of_dictionary(table, "module", path_of_hierarchy, texts)
    stacked = _of_dictionary(table, "stack", path_of_stack, texts)
    framed = _by_frames(table, parent, texts)
    code = np.where(recorded > 0, recorded, np.where(framed > 0, framed, stacked))
    return code, list(texts)


def _of_dictionary(table: EventTable, column: str, path: Callable[[str], str], texts: dict[str, int]) -> Array:
    known = table.dictionaries.get(column)
    if column not in table.columns or known is None:
        return np.zeros(len(table), dtype=np.int64)
    codes = [texts.setdefault(path(value), len(texts)) for value in known.values]
    found: Array = np.array([*codes, 0], dtype=np.int64)[table.column(column)]  # the last answers for NO_CODE
    return found


def _by_frames(table: EventTable, parent: Array, texts: dict[str, int]) -> Array:
    names = table.dictionaries["name"].values if "name" in table.dictionaries else []
    fits = np.array([*(name.startswith(MODULE_FRAME) for name in names), False], dtype=bool)
    frames = fits[table.column("name")] & (table.column("kind") == Kind.PYTHON_FUNCTION)
    if not frames.any():
        return np.zeros(len(table), dtype=np.int64)
    group, texts_of_groups = _chains(table, parent, frames, names)
    codes = [texts.setdefault(text, len(texts)) for text in texts_of_groups]
    found: Array = np.array(codes, dtype=np.int64)[group]
    return found


def _chains(table: EventTable, parent: Array, frames: Array, names: list[str]) -> tuple[Array, list[str]]:
    """(number of its chain of frames for each row, the path of each chain)."""
    rows = np.flatnonzero(frames)
    above = nearest(parent.copy(), frames)
    # What encloses comes before what it encloses: by start, the longer first.
    rows = rows[np.lexsort((~table.column("end")[rows], table.columns["start"][rows]))]
    chains: dict[tuple[int, int, int], int] = {}
    texts = [""]
    bases = [""]  # of each chain: what attribute paths inside of it start from
    chain_of: dict[int, int] = {NO_ROW: 0}
    attributes = [*(table.dictionaries["module"].values if "module" in table.columns else ()), ""]  # the last: no code
    columns = (above[rows], table.column("name")[rows], table.column("module")[rows])
    for row, outer, name, attribute in zip(rows.tolist(), *(column.tolist() for column in columns), strict=True):
        key = (chain_of.get(outer, 0), name, attribute)
        number = chains.get(key)
        if number is None:
            number = chains[key] = len(texts)
            if path := attributes[attribute]:
                texts.append(_joined([bases[key[0]], path]))
                bases.append(bases[key[0]])
            else:
                texts.append(_joined([texts[key[0]], names[name].removeprefix(MODULE_FRAME)]))
                bases.append(texts[-1])
        chain_of[row] = number
    chain = np.zeros(len(parent) + 1, dtype=np.int64)  # the last answers for NO_ROW
    chain[rows] = [chain_of[row] for row in rows.tolist()]
    found: Array = chain[np.where(frames, np.arange(len(parent)), above)]
    return found, texts
