"""cProfile: it counts every call of the main thread."""

import pstats
import sys
import tempfile
from pathlib import Path

from tool import TURNS, WORK, run

with tempfile.TemporaryDirectory() as folder:
    path = str(Path(folder, "stats"))
    line, _ = run(sys.executable, "-m", "cProfile", "-o", path, WORK, TURNS)
    stats = pstats.Stats(path).stats
    for name in ("leaf", "branch", "turns", "main"):
        print(name, sum(row[1] for key, row in stats.items() if key[2] == name))
    print(line)
