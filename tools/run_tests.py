"""Run every test in parallel, and each failed one a second time, alone.

The second run is for the report: it tells a broken test from one that fails now and then. A test that passes only then
is a bug of the test or of the product, and the last lines name it. PROFD_FLAKES_FAIL=1 makes such tests fail the run,
unless `tests/quarantine.toml` names them. It is to be the default once ten runs in a row, CI's counted, had none.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

# One more than cores: a third of the time tests wait, for windows, timers and other processes.
WORKERS: Final = str(len(os.sched_getaffinity(0)) + 1)
SLOWEST: Final = ("--durations=40", "--durations-min=5")  # where the minutes go, on each run's record
ROOT: Final = Path(__file__).resolve().parent.parent
LAST_FAILED: Final = Path(".pytest_cache", "v", "cache", "lastfailed")
QUARANTINE: Final = Path("tests", "quarantine.toml")
CODE: Final = ("client/profclient", "daemon/profd", "protos/profproto")
TESTS_FAILED: Final = 1  # pytest's exit code for failing tests, as against a broken run
MACHINE: Final = (Path("/etc/profd"), Path("/run/profd"))  # what daemons of everybody read, whichever run left it
STRICT: Final = "PROFD_FLAKES_FAIL"


def main(root: Path = ROOT) -> int:
    """The exit code of the whole run. It fails where it leaves a folder of the machine that was not there before."""
    absent = [folder for folder in MACHINE if not folder.exists()]  # where one is, a daemon of the machine may write
    code = run_all(root)
    left = [str(folder) for folder in absent if folder.exists()]
    if left:
        print(f"\nLEFT ON THE MACHINE, where the next run's daemons find it: {', '.join(left)}")
    return code or (TESTS_FAILED if left else 0)


def run_all(root: Path) -> int:
    """Every test, then the failed ones; the exit code."""
    quarantined = names(root / QUARANTINE)
    if quarantined and (code := pytest(root, "--collect-only", "-qq", "--no-header", *quarantined, quiet=True)):
        print(f"{QUARANTINE} names tests that do not exist, or are broken: take them out.")
        return code
    (root / LAST_FAILED).unlink(missing_ok=True)
    compile_once(root)
    code = pytest(root, "-n", WORKERS, "--dist", "loadgroup", *SLOWEST, *sys.argv[1:])
    failed = without_groups(root)
    if code != TESTS_FAILED or not failed:
        return code
    print("\nonce more, alone, what failed …", flush=True)
    code = pytest(root, "--last-failed", "--last-failed-no-failures", "none", *sys.argv[1:])
    return code or verdict(failed - failures(root), quarantined, strict=os.environ.get(STRICT, "") == "1")


def verdict(flaky: set[str], quarantined: set[str], *, strict: bool) -> int:
    """Print the tests that passed only at the second run; the exit code that they come to."""
    print(f"\nPASSED ONLY AT THE SECOND RUN: {len(flaky)}. Each is a bug of the test or of the product.")
    for name in sorted(flaky):
        print(f"  {name}{f' (quarantined in {QUARANTINE})' if name in quarantined else ''}")
    if not flaky - quarantined:
        return 0
    print("They fail this run." if strict else f"They would fail a run with {STRICT}=1.")
    return TESTS_FAILED if strict else 0


def names(file: Path) -> set[str]:
    """The tests in quarantine. Raises KeyError for one without a name, a reason or a date."""
    entries = tomllib.loads(file.read_text()).get("test", [])
    return {entry["name"] for entry in entries if entry["reason"] and entry["since"].isoformat()}


def without_groups(root: Path) -> set[str]:
    """The tests that failed in the run in parallel, where xdist puts `@GROUP` behind names, as other runs know them."""
    found = {name.rpartition("@")[0] if name.rfind("@") > name.rfind("]") else name for name in failures(root)}
    if found:
        (root / LAST_FAILED).write_text(json.dumps(dict.fromkeys(sorted(found), True)))
    return found


def failures(root: Path) -> set[str]:
    """The tests that failed in the last run."""
    file = root / LAST_FAILED
    return set(json.loads(file.read_text())) if file.exists() else set()


def compile_once(root: Path) -> None:
    """Write the byte code of our packages, which each of a run's daemons and commands would compile for itself.

    Confined workers may write nothing, and without this compile whatever no other process has imported.
    """
    folders = [folder for folder in CODE if (root / folder).is_dir()]
    if folders:
        subprocess.run([sys.executable, "-m", "compileall", "-q", *folders], cwd=root, check=True)


def environment() -> dict[str, str]:
    """Ours, with byte code: images of containers often turn it off, and then each process compiles what it imports."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def pytest(root: Path, *arguments: str, quiet: bool = False) -> int:
    """Run pytest with our interpreter; its exit code."""
    out = subprocess.DEVNULL if quiet else None
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *arguments], cwd=root, env=environment(), stdout=out, check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
