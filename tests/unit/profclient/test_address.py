"""Where a daemon is looked for, and where not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from profclient import address

SOMEBODY = 65534


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The runtime directory and the home that the environment names."""
    runtime, home = tmp_path / "runtime", tmp_path / "home"
    for name, folder in (("XDG_RUNTIME_DIR", runtime), ("HOME", home)):
        folder.mkdir()
        monkeypatch.setenv(name, str(folder))
    for name in ("PROFD_ADDRESS", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    return runtime, home


def test_the_users_own_daemon_comes_first(folders: tuple[Path, Path]) -> None:
    runtime, home = folders
    assert address.candidates() == [str(runtime / "profd" / "profd.sock"), address.SYSTEM_SOCKET]
    runtime.rmdir()
    assert address.candidates() == [str(home / ".local/state/profd/profd.sock"), address.SYSTEM_SOCKET]


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a folder away takes root")
def test_what_listens_in_somebody_elses_folder_is_not_asked(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after `su` without a dash: root's processes would attach to what the caller of it has put there."""
    runtime, home = folders
    os.chown(runtime, SOMEBODY, SOMEBODY)
    assert address.candidates() == [str(home / ".local/state/profd/profd.sock"), address.SYSTEM_SOCKET]
    os.chown(home, SOMEBODY, SOMEBODY)
    assert address.candidates() == [address.SYSTEM_SOCKET]
    assert address.of_agents() == ["/run/profd/agent.sock"]
    monkeypatch.setenv("XDG_STATE_HOME", str(home))
    assert address.candidates() == [address.SYSTEM_SOCKET]
    # AND an address that is given is asked whoever's it is
    monkeypatch.setenv("PROFD_ADDRESS", f"unix:{runtime}/s")
    assert address.candidates() == [f"{runtime}/s"]
