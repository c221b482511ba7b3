"""Programs with a planted trouble or none, and seeds of simulations: labels.toml says what each has (README.md)."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).parent


@dataclass(frozen=True)
class Label:
    """One program; the keys of labels.toml."""

    name: str
    file: Path
    recorded: str
    cause: str
    test: str
    finding: str = ""
    says: tuple[str, ...] = ()


@cache
def labels(recorded: str) -> dict[str, Label]:
    """Programs that are recorded in this way, by name, in the order of the file."""
    return {label.name: label for label in every() if label.recorded == recorded}


def every() -> list[Label]:
    """All of them."""
    found = []
    for program in _index()["program"]:
        rest = {key: value for key, value in program.items() if key not in ("names", "file", "says")}
        file, says = FOLDER / program["file"], tuple(program.get("says", ()))
        found += [Label(name, file, says=says, **rest) for name in program["names"]]
    return found


def seeds(simulation: str, *, bench: bool = False) -> range:
    """The seeds of a simulation, in tests or in `python -m bench answers`."""
    return range(_index()["simulation"][simulation]["bench" if bench else "tests"])


def simulations() -> dict[str, dict[str, Any]]:
    """What the file says of each."""
    found: dict[str, dict[str, Any]] = _index()["simulation"]
    return found


@cache
def _index() -> dict[str, Any]:
    return tomllib.loads((FOLDER / "labels.toml").read_text())
