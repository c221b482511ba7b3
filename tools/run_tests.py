"""Run every test: in parallel first, what failed once more alone.

A test that passes only alone is a bug of the test or of the product; it is
named at the end. It does not fail the run: on a shared machine one lost race
must not hide whether the rest holds. PROFD_NO_SECOND_CHANCE=1 switches that off.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

WORKERS = "2"
ROOT = Path(__file__).resolve().parent.parent
LAST_FAILED = ROOT / ".pytest_cache" / "v" / "cache" / "lastfailed"
TESTS_FAILED = 1  # pytest's exit code for failing tests, as against a broken run


def pytest(*arguments: str) -> int:
    """Run pytest with our interpreter; its exit code."""
    return subprocess.run([sys.executable, "-m", "pytest", "-q", *arguments], cwd=ROOT, check=False).returncode


def main() -> int:
    """The exit code of the whole run."""
    LAST_FAILED.unlink(missing_ok=True)
    code = pytest("-n", WORKERS, "--dist", "loadgroup", *sys.argv[1:])
    if code != TESTS_FAILED or os.environ.get("PROFD_NO_SECOND_CHANCE"):
        return code
    failed = LAST_FAILED.read_text() if LAST_FAILED.exists() else ""
    print("\nonce more, alone, what failed …", flush=True)
    code = pytest("--last-failed", "--last-failed-no-failures", "none", *sys.argv[1:])
    if code == 0:
        print(f"\nFLAKY: failed in the first run and passed alone. Each is a bug to be found:\n{failed}")
    return code


if __name__ == "__main__":
    sys.exit(main())
