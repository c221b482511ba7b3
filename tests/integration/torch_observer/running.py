"""Programs of these tests in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

OBSERVED = Path(__file__).with_name("observed.py")
SECONDS = 600.0


def run(output: Path, *arguments: str, **environment: str) -> dict[str, Any]:
    """What observed.py says, by workload."""
    command = [sys.executable, str(OBSERVED), str(output), *arguments]
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, f"{done.returncode}: {done.stderr[-3000:]}"
    found: dict[str, Any] = json.loads(output.read_text())
    return found


def run_ranks(workload: str, folder: Path, *arguments: str) -> list[dict[str, Any]]:
    """The same of two ranks that talk over gloo."""
    meeting = folder / f"store{'-'.join(arguments)}"  # a file: no port that somebody else may take meanwhile
    outputs = [folder / f"rank{rank}{'-'.join(arguments)}.json" for rank in range(2)]
    ranks = [
        subprocess.Popen(
            [sys.executable, str(OBSERVED), str(output), workload, *arguments],
            env={
                **os.environ,
                "RANK": str(rank),
                "MEETING": str(meeting),
            },
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, output in enumerate(outputs)
    ]
    try:
        said = [process.communicate(timeout=SECONDS)[1] for process in ranks]
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    assert [process.returncode for process in ranks] == [0, 0], "\n".join(errors[-3000:] for errors in said)
    return [json.loads(output.read_text())[workload] for output in outputs]
