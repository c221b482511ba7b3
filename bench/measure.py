"""Measuring in child processes, and rows of results."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SCRATCH = ROOT / ".bench"


@dataclass
class Row:
    """One line of the table. `ratio` is what `bar` speaks of; None: not measured here, and why in `note`."""

    case: str
    what: str
    ours: str
    peer: str = ""
    floor: str = ""
    ratio: float | None = None
    bar: str = ""
    met: bool | None = None
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        """For --json."""
        return asdict(self)


class ChildFailed(Exception):
    """A measured process failed; str() is the end of what it said."""


def child(
    function: str,
    arguments: dict[str, Any],
    python: str = sys.executable,
    environment: Mapping[str, str] | None = None,
    limit: float | None = None,
) -> dict[str, Any]:
    """Run one function in a process of its own: seconds, cpu_seconds, peak_bytes, result.

    `environment`: variables besides our own. Raises subprocess.TimeoutExpired after `limit` seconds.
    """
    done = subprocess.run(
        [python, "-m", "bench.child", function, json.dumps(arguments)],
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=limit,
    )
    for line in reversed(done.stdout.splitlines()):
        if line.startswith("RESULT "):
            answer: dict[str, Any] = json.loads(line.removeprefix("RESULT "))
            return answer
    raise ChildFailed(f"{function}: {(done.stderr or done.stdout)[-1500:]}")


def median(
    function: str,
    arguments: dict[str, Any],
    times: int,
    python: str = sys.executable,
    environment: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The run of median seconds out of several; its peak is the largest of all."""
    runs = [child(function, arguments, python, environment) for _ in range(times)]
    middle = sorted(runs, key=lambda run: run["seconds"])[len(runs) // 2]
    return {**middle, "peak_bytes": max(run["peak_bytes"] for run in runs)}


def spread(values: list[float]) -> str:
    """`median (min to max)` of seconds, for notes."""
    return f"{statistics.median(values):.3g} ({min(values):.3g} to {max(values):.3g})"
