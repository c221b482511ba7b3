"""What a recorder has seen of the program of known truth, and how that differs from the truth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from bench.gpu.program import ADD, NODE, Truth
from bench.gpu.results import Check

COPY_KINDS = {1: "HtoD", 2: "DtoH", 8: "DtoD"}  # CUpti_ActivityMemcpyKind


@dataclass(slots=True)
class Recorded:
    """Records by what they are of. Times in ns of one clock."""

    kernels: list[tuple[str, int, int, int, int]] = field(default_factory=list)  # name, stream, correlation, start, end
    copies: list[tuple[int, int]] = field(default_factory=list)  # kind of copy, bytes
    copy_names: list[str] = field(default_factory=list)  # as a trace has them; none of cupti-python's
    fills: list[int] = field(default_factory=list)  # bytes
    calls: list[int] = field(default_factory=list)  # correlation ids of runtime and driver calls
    lost: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Sums, for the result file."""
        return {
            "kernels": dict(Counter(name for name, *_ in self.kernels)),
            "copies": {kind: list(sums) for kind, sums in _copies(self.copies).items()},
            "fills": [len(self.fills), sum(self.fills)],
            "calls": len(self.calls),
            "lost": self.lost,
        }


def compare(truth: Truth, seen: Recorded, who: str) -> list[Check]:
    """A check for each thing that is known exactly."""
    names = Counter(name for name, *_ in seen.kernels)
    adds = [kernel for kernel in seen.kernels if kernel[0] == ADD]
    ids = [correlation for _, _, correlation, _, _ in adds]
    calls = Counter(seen.calls)
    graph_ids = {correlation for name, _, correlation, _, _ in seen.kernels if name == NODE}
    bad_times = sum(not 0 < start <= end for *_, start, end in seen.kernels)
    return [
        *(_equal(f"{who}: kernels {name}", count, names[name]) for name, count in truth.kernels.items()),
        _equal(f"{who}: streams", truth.streams, len({stream for _, stream, *_ in adds})),
        *(
            _equal(f"{who}: copies {kind}, bytes", sums, _copies(seen.copies).get(kind, (0, 0)))
            for kind, sums in truth.copies.items()
        ),
        _equal(f"{who}: fills, bytes", truth.fills, (len(seen.fills), sum(seen.fills))),
        _equal(f"{who}: correlation ids of launches differ", len(ids), len(set(ids))),
        _equal(f"{who}: launches whose call is recorded once", len(ids), sum(calls[one] == 1 for one in ids)),
        _equal(f"{who}: graph launches by correlation id", truth.graph_launches, len(graph_ids)),
        _equal(f"{who}: kernels with impossible times", 0, bad_times),
        _equal(f"{who}: lost", 0, seen.lost),
    ]


def agree(ours: Recorded, theirs: Recorded) -> Check:
    """Both saw the same work: names and bytes, not times, which are those of two runs."""
    mine, other = ours.as_dict(), theirs.as_dict()
    differing = [key for key in ("kernels", "copies", "fills") if mine[key] != other[key]]
    detail = ", ".join(f"{key}: {mine[key]} and {other[key]}" for key in differing)
    return Check("ours and cupti-python agree", not differing, detail)


def _copies(copies: Iterable[tuple[int, int]]) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for kind, size in copies:
        name = COPY_KINDS.get(kind, str(kind))
        count, moved = found.get(name, (0, 0))
        found[name] = (count + 1, moved + size)
    return found


def _equal(name: str, expected: Any, found: Any) -> Check:
    same = expected == found
    return Check(name, same, str(found) if same else f"expected {expected}, found {found}")
