"""`profd --check` beside a running daemon, and settings that no daemon starts with."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon import running_daemon
from tests.support.waiting import until

pytestmark = pytest.mark.slow


def check(*flags: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "profd.main", "--user", "--check", "--json", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    answer: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (0 if answer["ok"] else 1)
    return answer


def test_the_settings_of_a_running_daemon_pass_and_leave_it_alone() -> None:
    with running_daemon("--metrics", "127.0.0.1:0") as daemon:
        until(lambda: '"metrics"' in daemon.log, "it says where its metrics are")
        port = re.findall(r'"metrics": "127.0.0.1:(\d+)"', daemon.log)[0]
        where = ["--state-dir", str(daemon.state_dir), "--socket", str(daemon.socket)]
        answer = check(*where, "--metrics", f"127.0.0.1:{port}")
        assert answer["ok"], answer
        told = {of["name"]: of["detail"] for of in answer["checks"]}
        assert told["daemon"] == f"pid {daemon.process.pid} serves {daemon.socket} now"
        assert told["metrics"] == f"127.0.0.1:{port}, served by a profd now"
        assert daemon.process.poll() is None


@pytest.mark.parametrize("check_first", [True, False])
def test_an_admin_group_that_is_not_there(tmp_path: Path, check_first: bool) -> None:
    flags = ["--state-dir", str(tmp_path), "--socket", str(tmp_path / "s"), "--metrics", "off"]
    command = [sys.executable, "-m", "profd.main", "--user", "--admin-group", "no-such", *flags]
    done = subprocess.run(
        [*command, *(["--check"] if check_first else [])], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1
    assert "there is no group 'no-such'" in done.stdout + done.stderr
    assert not (tmp_path / "s").exists()
