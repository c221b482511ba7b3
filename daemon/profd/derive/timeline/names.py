"""Full names of framework operators: `scope1/scope2/mul:Mul`, as XProf 2.24.2 reads them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from profd.limits import XSPACE_LEVELS_MAX

_TF_NAME: Final = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*")
_TF_TYPE: Final = re.compile(r"[A-Z_][A-Za-z0-9_]*")
_JAX_TYPE: Final = re.compile(r"[a-z_][a-z0-9_]*(\[.*\])?")
_COUNTER: Final = re.compile(r"_\d+$")
_COPY: Final = re.compile(r"memcpy([hd])to([hd])", re.IGNORECASE)
_ITERATOR: Final = "Iterator"  # of tf.data: stages of an input pipeline


@dataclass(frozen=True, slots=True)
class FrameworkOp:
    """The parts of a full name. `shown` is its type, or the full name where that is no operator's."""

    full_name: str
    shown: str
    scopes: tuple[str, ...] = ()  # outermost first; none where the name is no operator's

    @property
    def long_name(self) -> str:
        """A name that tells apart operators that are shown alike; empty where there is no type to show."""
        _, colon, kind = self.full_name.partition(":")
        return "" if colon and not kind and self.shown == self.full_name else self.full_name


def parse_op(full_name: str) -> FrameworkOp:
    """Scopes are the path without its last part, for names of TensorFlow and JAX only."""
    path, colon, kind = full_name.partition(":")
    if not colon:
        return FrameworkOp(full_name, _shown(full_name))
    if path == _ITERATOR:
        return FrameworkOp(full_name, f"{_ITERATOR}::{full_name.rpartition('::')[2]}")
    scopes = tuple(path.split("/")[:-1][:XSPACE_LEVELS_MAX])
    if not kind:  # of JAX: the last part of the path, but for its number
        shown = _COUNTER.sub("", path.rpartition("/")[2]).partition("[")[0]
        return FrameworkOp(full_name, shown or full_name, scopes)
    if _JAX_TYPE.fullmatch(kind):
        # Parameters stand behind the name of a primitive, which is the same operator with others.
        return FrameworkOp(full_name, kind.partition("[")[0], scopes)
    if _TF_TYPE.fullmatch(kind) and _TF_NAME.fullmatch(path):
        return FrameworkOp(full_name, kind, scopes)
    return FrameworkOp(full_name, _shown(full_name))


def _shown(name: str) -> str:
    """A name that is no operator's: some are of copies."""
    copy = _COPY.match(name)
    return f"Memcpy{copy[1].upper()}To{copy[2].upper()}" if copy and ":" not in name else name.rstrip() or name
