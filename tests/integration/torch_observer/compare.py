"""The observer's events beside torch.profiler's of the same run, in the same words."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from profd.decode.op_inputs import signature

EVALUATE = "autograd::engine::evaluate_function: "
BACKWARD_FUNCTION = 1
OPEN = 1 << 63
INPUT_KEYS = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")


@dataclass
class Op:
    """One event; times only order it."""

    name: str
    depth: int
    sequence: int  # -1: none
    forward: int  # 0: none; numbered in its source's own way
    user: bool
    inputs: dict[str, Any]
    ended: bool = True


def of_observer(events: list[dict[str, Any]], thread: int) -> list[Op]:
    mine = [event for event in events if event["tid"] == thread and event["kind"] in ("OP", "RANGE")]
    depths = _depths([(event["start"], event["end"] or OPEN) for event in mine])
    ops = []
    for event, depth in zip(mine, depths, strict=True):
        stream = event["ext"].get("1")
        said = json.loads(signature(bytes.fromhex(stream))) if stream else {}
        ops.append(
            Op(
                event["name"],
                depth,
                event["sequence"],
                event["forward"],
                event["kind"] == "RANGE",
                said,
                event["end"] != 0,
            )
        )
    _plumb(ops, [event["scope"] for event in mine])
    return ops


def of_profiler(events: list[dict[str, Any]], thread: int) -> list[Op]:
    mine = [event for event in events if event["tid"] == thread]
    # Whole ns: in µs a child may end after its parent by rounding.
    mine.sort(key=lambda event: (round(event["ts"] * 1000), -round(event["dur"] * 1000), event["args"]["Ev Idx"]))
    depths = _depths([(round(e["ts"] * 1000), round(e["ts"] * 1000) + round(e["dur"] * 1000)) for e in mine])
    return [
        Op(
            event["name"],
            depth,
            event["args"].get("Sequence number", -1),
            event["args"].get("Fwd thread id", 0),
            event["cat"] == "user_annotation",
            {key: event["args"][key] for key in INPUT_KEYS if key in event["args"]},
        )
        for event, depth in zip(mine, depths, strict=True)
    ]


def _depths(spans: list[tuple[int, int]]) -> list[int]:
    depths: list[int] = []
    open_until: list[int] = []
    for start, end in spans:
        while open_until and open_until[-1] <= start:
            open_until.pop()
        depths.append(len(open_until))
        open_until.append(end)
    return depths


def _plumb(ops: list[Op], scopes: list[int]) -> None:
    """The engine's rows get the numbers of the functions they call, as torch.profiler gives them."""
    for outer, inner, scope in zip(ops, ops[1:], scopes[1:], strict=False):
        if outer.name.startswith(EVALUATE) and scope == BACKWARD_FUNCTION:
            outer.sequence, outer.forward = inner.sequence, inner.forward
