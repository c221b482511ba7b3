"""py-spy record around the program: it stops it again and again to look at its stacks."""

import shutil
import sys
import tempfile
from pathlib import Path

from tool import TURNS, WORK, run

pyspy = shutil.which("py-spy", path=f"{Path(sys.executable).parent}:{Path(sys.prefix, 'bin')}") or "py-spy"
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "stacks")
    line, _ = run(pyspy, "record", "-r", "50", "-f", "raw", "-o", str(path), "--", sys.executable, WORK, TURNS)
    print("stacks of it:", "work.py" in path.read_text())
    print(line)
