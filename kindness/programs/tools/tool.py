"""How the programs of this folder run a tool around `work.py`."""

import subprocess
import sys
from pathlib import Path

WORK = str(Path(__file__).with_name("work.py"))
TURNS = sys.argv[1]


def run(*command):
    """Run it; end with 1 and what it said where it fails. Its `ok` lines, and all of its output."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("ok ")]
    if done.returncode or not lines:
        sys.exit(f"{command[:4]} ended with {done.returncode}: {done.stdout[-500:]}{done.stderr[-1500:]}")
    return lines[0], done.stdout + done.stderr
