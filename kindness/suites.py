"""CPython's own tests: which of them are run, what each of them came to, and how two runs differ."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

MODULES: Final = (
    *("test_thread", "test_threading", "test_threading_local", "test_threadsignals", "test_gc", "test_signal"),
    *("test_fork1", "test_sys_settrace", "test_sys_setprofile", "test_faulthandler", "test_ctypes", "test_subprocess"),
    *("test_atexit", "test_audit", "test_generators", "test_coroutines", "test_asyncio", "test_concurrent_futures"),
    *("test_multiprocessing_main_handling", "test_multiprocessing_fork", "test_multiprocessing_forkserver"),
    "test_multiprocessing_spawn",
)
OF_VERSIONS: Final = {
    "3.11": ("test__xxsubinterpreters", "test_interpreters"),
    "3.12": ("test_monitoring", "test__xxsubinterpreters", "test__xxinterpchannels", "test_interpreters"),
    "3.13": ("test_monitoring", "test__interpreters", "test__interpchannels", "test_interpreters"),
}

# What is different under a recording by its very nature: "version:test", both patterns, and the reason.
INHERENT: Final[Mapping[str, str]] = {
    "*:test.test_subprocess.POSIXProcessTestCase.test_pass_fds_redirected": (
        "a child lists the descriptors that it has: an attached one has two more, of its connection to the daemon"
    ),
    "*:test.test_monitoring.*": (
        "each test first makes sure that no tool of the interpreter has events, and some list those of all threads: "
        "while calls are recorded (`--stacks`) ours has, and its agent's thread runs Python, too"
    ),
}

Results = Mapping[str, str]  # test: passed, failed or skipped


def modules(version: str) -> tuple[str, ...]:
    """All that are run on this version."""
    return (*MODULES, *OF_VERSIONS[version])


def read(path: Path) -> Results:
    """What `python -m test --junit-xml` has written. Empty where it wrote nothing."""
    try:
        root = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError):
        return {}
    found: dict[str, str] = {}
    for case in root.iter("testcase"):
        name = case.get("name", "")
        outcome = next((_NAMES[child.tag] for child in case if child.tag in _NAMES), "passed")
        # Subtests and errors of a class come under one name: the gravest counts.
        found[name] = max(found.get(name, "passed"), outcome, key=_GRAVITY.index)
    return found


_NAMES: Final = {"failure": "failed", "error": "failed", "skipped": "skipped"}
_GRAVITY: Final = ("passed", "skipped", "failed")


def differing(plain: Results, captured: Results) -> dict[str, str]:
    """Tests that came to something else under captures, and how: `passed, then failed`."""
    return {
        name: f"{plain.get(name, 'not run')}, then {captured.get(name, 'not run')}"
        for name in sorted({*plain, *captured})
        if plain.get(name) != captured.get(name)
    }


def unexplained(version: str, differences: Mapping[str, str]) -> dict[str, str]:
    """Those for which `INHERENT` has no reason."""
    return {
        name: how
        for name, how in differences.items()
        if not any(fnmatchcase(f"{version}:{name}", pattern) for pattern in INHERENT)
    }


def keep(path: Path, results: Results) -> None:
    """Plain results do not depend on our sources: they are kept between runs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1, sort_keys=True))


def kept(path: Path) -> Results | None:
    """What `keep` has written, if it has."""
    return json.loads(path.read_text()) if path.exists() else None
