"""One result file per script: what was measured, where, and whether it is what was promised."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

SCHEMA = 1
FOLDER = Path(__file__).parent / "results"
_CHECKOUT = Path(__file__).resolve().parents[2]
_MACHINE: dict[str, type | tuple[type, ...]] = {
    "driver": (str, type(None)),
    "gpus": list,
    "packages": dict,
    "python": str,
    "date": str,
}


class BadResult(Exception):
    """A file that is no result; str() says what is wrong with it."""


@dataclass(slots=True)
class Check:
    """One promise. `passed` None: it could not be looked at, and why in `detail`."""

    name: str
    passed: bool | None
    detail: str = ""


@dataclass(slots=True)
class Result:
    """What one script has found. `stand_in`: no GPU took part, whatever the numbers say."""

    script: str
    machine: dict[str, Any]
    checks: list[Check] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)
    stand_in: bool = False

    @property
    def passed(self) -> bool:
        """Nothing that was looked at is otherwise than promised, and something was looked at."""
        seen = [check.passed for check in self.checks if check.passed is not None]
        return bool(seen) and all(seen)

    def write(self, folder: Path = FOLDER) -> Path:
        """Write it; the file's name says script, GPU and date."""
        folder.mkdir(parents=True, exist_ok=True)
        gpu = "stand-in" if self.stand_in else (self.machine["gpus"] or ["no-gpu"])[0]
        path = folder / f"{self.script}-{_word(gpu)}-{self.machine['date']}.json"
        text = json.dumps({"schema": SCHEMA, "passed": self.passed, **asdict(self)}, indent=1) + "\n"
        path.write_text(text.replace(f"{_CHECKOUT}/", ""))  # where a checkout lies on a machine is its user's business
        return path


def read(path: Path) -> Result:
    """A result file. Raises BadResult."""
    try:
        found = json.loads(path.read_text())
    except ValueError as error:
        raise BadResult(f"{path.name} is no JSON: {error}") from error
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        raise BadResult(f"{path.name} is no result of schema {SCHEMA}")
    machine = found.get("machine")
    if not isinstance(machine, dict):
        raise BadResult(f"{path.name} does not say which machine it is from")
    for key, kind in _MACHINE.items():
        if not isinstance(machine.get(key), kind):
            raise BadResult(f"{path.name}: machine.{key} is missing or of the wrong type")
    try:
        checks = [Check(**check) for check in found["checks"]]
        result = Result(found["script"], machine, checks, found["data"], bool(found["stand_in"]))
    except (KeyError, TypeError) as error:
        raise BadResult(f"{path.name} lacks a part: {error}") from error
    if found.get("passed") != result.passed:
        raise BadResult(f"{path.name} says passed: {found.get('passed')}, and its checks say otherwise")
    return result


def verified_row(result: Result, file: str) -> str:
    """Its row in the table "Verified on" of docs/gpu.md."""
    machine = result.machine
    torch = machine["packages"].get("torch", "-")
    version = result.data.get("cuda")  # of some scripts; in end_to_end it is a way of recording
    cuda = version if isinstance(version, str) else "-"
    gpu = "stand-in" if result.stand_in else ", ".join(sorted(set(machine["gpus"]))) or "-"
    verdict = "passed" if result.passed else "FAILED"
    cells = (result.script, torch, cuda, machine["driver"] or "-", gpu, machine["date"], verdict, f"`{file}`")
    return f"| {' | '.join(cells)} |"


def _word(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-").lower()
