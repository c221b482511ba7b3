"""What `tools/bare_root.py` takes out of the docs is there, and is what it takes it for."""

from __future__ import annotations

import pytest

from tools import bare_host, bare_root


@pytest.mark.parametrize(
    ("page", "heading", "number", "command"),
    [
        (bare_root.README, "Install", 0, "apt-get install git make g++ python3 python3-venv python3-dev"),
        (bare_root.README, "Install", 1, "pip install '.[daemon]'"),
        (bare_root.README, "First answer", 0, "profctl start --pid PID --duration 5s"),
        (bare_root.SERVICE, "Before", 0, f"git clone {bare_root.CLONED} profd && cd profd"),
        (bare_root.SERVICE, "With systemd", 0, "systemctl enable --now profd"),
        (bare_root.SERVICE, "With systemd", 1, "profd --check && systemctl reload profd"),
        (bare_root.OPERATIONS, "Upgrade", 0, "git pull"),
        (bare_root.OPERATIONS, "Back up and restore", 0, "tar -C /var/lib/profd"),
        (bare_root.OPERATIONS, "Back up and restore", 1, "profctl --store /var/lib/profd store rebuild"),
        (bare_root.OPERATIONS, "Remove", 0, "userdel profd-worker"),
    ],
)
def test_a_block_of_commands(page: str, heading: str, number: int, command: str) -> None:
    assert command in bare_root.block(page, heading, number)


def test_a_block_that_there_is_not() -> None:
    with pytest.raises(bare_host.Failed, match=r"README\.md has no block 9 below 'Install'"):
        bare_root.block(bare_root.README, "Install", 9)
