"""viztracer: every call as an event."""

import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tool import TURNS, WORK, run

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "trace.json")
    line, _ = run(sys.executable, "-m", "viztracer", "-o", str(path), "--", WORK, TURNS)
    events = json.loads(path.read_text())["traceEvents"]
    counts = Counter(event["name"].partition(" ")[0] for event in events if event["ph"] == "X")
    print({name: counts[name] for name in ("leaf", "branch", "turns", "main")})
    print(line)
