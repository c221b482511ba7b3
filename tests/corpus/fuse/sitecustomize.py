"""Kills the daemon whose environment says when: `PROFD_TEST_FUSE=EVENT PATTERN`.

EVENT is one of Python's audit events (`os.rename`, `shutil.rmtree`, `open` …), PATTERN a regular expression over its
arguments, joined by blanks: the daemon dies by SIGKILL before it does such a thing. `record PATTERN` waits for a record
with this in its content, and strikes when it has been renamed to its name, before anything else happens on that disk.
No module of profd is named here, so that the corpus can be made again after any move.
"""

import os
import re
import signal
import sys


def _strike(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _on(wanted: str, pattern: "re.Pattern[str]") -> None:
    def hook(event: str, arguments: "tuple[object, ...]") -> None:
        if event == wanted and pattern.search(" ".join(map(str, arguments))):
            _strike()

    sys.addaudithook(hook)


def _on_record(pattern: "re.Pattern[str]") -> None:
    written: list[bool] = []

    def hook(event: str, arguments: "tuple[object, ...]") -> None:
        if event == "open" and written and str(arguments[0]).endswith("/records/captures"):
            _strike()  # its directory is synced after the rename
        elif event == "os.rename" and "/records/captures/" in str(arguments[1]):
            with open(str(arguments[0])) as file:
                if pattern.search(file.read()):
                    written.append(True)

    sys.addaudithook(hook)


_when = os.environ.get("PROFD_TEST_FUSE", "")
if _when and "profd.main" in sys.orig_argv:
    _event, _, _pattern = _when.partition(" ")
    if _event == "record":
        _on_record(re.compile(_pattern))
    else:
        _on(_event, re.compile(_pattern))
