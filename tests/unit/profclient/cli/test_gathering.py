"""What `profctl collect` prints of what came and what did not."""

from __future__ import annotations

from pathlib import Path

from profclient.cli import gathering


def test_a_host_that_names_thousands_of_processes_fills_no_terminal(capsys) -> None:
    missing = [{"host": "n1", "rank": rank, "why": "x" * 1000} for rank in range(4096)]
    gathering.print_gathered({"capture": "f0123456789ab", "traces": [], "missing": missing}, Path("/to"))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == gathering.MISSING_SHOWN + 2
    assert lines[-1] == "  missing  … and 3,996 more; --json has all"
