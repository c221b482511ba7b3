"""Full names of framework operators: `scope1/scope2/mul:Mul`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from profd.limits import XSPACE_LEVELS_MAX

_TF_NAME: Final = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*")
_TF_TYPE: Final = re.compile(r"[A-Z_][A-Za-z0-9_]*")
_JAX_TYPE: Final = re.compile(r"([a-z_][a-z0-9_]*)(\[.*\])?")
_COUNTER: Final = re.compile(r"_\d+$")

NAMELESS: Final = ":"  # the full name of an operator that has neither name nor type: there is nothing longer to tell


@dataclass(frozen=True, slots=True)
class FrameworkOp:
    """What a full name tells. `shown` is its type, or the full name where that is no operator's."""

    full_name: str
    shown: str
    scopes: tuple[str, ...] = ()  # outermost first; none where the name is no operator's


def parse_op(full_name: str) -> FrameworkOp:
    """Scopes are the path without its last part, for names of TensorFlow and JAX only."""
    path, colon, kind = full_name.partition(":")
    if not colon:
        return FrameworkOp(full_name, full_name)
    kind = kind or _COUNTER.sub("", path.rpartition("/")[2])
    of_jax = _JAX_TYPE.fullmatch(kind)
    scopes = tuple(path.split("/")[:-1][:XSPACE_LEVELS_MAX])
    if of_jax:
        # Parameters stand behind the name of a primitive, which is the same operator with others.
        return FrameworkOp(full_name, of_jax[1], scopes)
    if _TF_TYPE.fullmatch(kind) and _TF_NAME.fullmatch(path):
        return FrameworkOp(full_name, kind, scopes)
    return FrameworkOp(full_name, full_name)
