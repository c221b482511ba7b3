"""coverage: the lines that ran, on both threads."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tool import TURNS, WORK, run

with tempfile.TemporaryDirectory() as folder:
    os.environ["COVERAGE_FILE"] = str(Path(folder, "data"))
    line, _ = run(sys.executable, "-m", "coverage", "run", WORK, TURNS)
    report = Path(folder, "report.json")
    subprocess.run([sys.executable, "-m", "coverage", "json", "-q", "-o", report], check=True)
    (found,) = json.loads(report.read_text())["files"].values()
    print("lines", found["executed_lines"])
    print(line)
