"""Nobody but targets/procfs looks into another process: whoever does may wait for it for ever."""

from __future__ import annotations

import re
from pathlib import Path

import profd

ALLOWED = {
    "targets/procfs.py": "the room itself",
    "targets/guarded.py": "stat(2) of the directory, which never waits",
    "sources/pyspy/launch.py": "in a child that becomes the sampler, which is ended at its deadline",
    "sources/pyspy/warden.py": "a process of its own, which dies with its sampler",
    "sources/pyspy/tool.py": "status, task and schedstat of our own samplers, which never wait",
    "sources/pyspy/confinement.py": "modes of files below /proc/PID/root: the room has told that it answers",
    "workers/cpu.py": "stat of our own workers",
}
# A path with a number in it, whose text goes to open, stat, readlink or listdir by another way than procfs.
_PATH = re.compile(r"""/proc/\{|Path\(["']/proc["'], str\(|["']/proc["']\) / str\(""")
_ROOM = re.compile(r"procfs\.\w+\(|Refused|Error\(")


def test_every_look_into_another_process_goes_through_the_room() -> None:
    root = Path(profd.__file__).parent
    found = set()
    for file in root.rglob("*.py"):
        name = str(file.relative_to(root))
        for line in file.read_text("utf-8").splitlines():
            if _PATH.search(line) and not _ROOM.search(line) and not line.lstrip().startswith(("#", 'f"', '"')):
                found.add(name)
    # Paths that are made there and opened by procfs alone: looked through by hand.
    assert found - ALLOWED.keys() == {"sources/pyspy/target.py", "targets/identity.py", "trust/pickup.py"} & found
