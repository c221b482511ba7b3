"""memray run: its own allocator hooks and profile functions."""

import subprocess
import sys
import tempfile
from pathlib import Path

from tool import TURNS, WORK, run

with tempfile.TemporaryDirectory() as folder:
    path = str(Path(folder, "run.bin"))
    line, _ = run(sys.executable, "-m", "memray", "run", "-o", path, WORK, TURNS)
    summary = subprocess.run(
        [sys.executable, "-m", "memray", "stats", path], capture_output=True, text=True, check=True
    )
    print("allocations seen:", "Total allocations" in summary.stdout)
    print(line)
