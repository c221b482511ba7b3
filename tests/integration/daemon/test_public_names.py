"""Names that others use: scripts, modules, verbs, options, keys, metrics, sockets, the contract.

The list of before is tests/corpus/names.json. Some are added to it; one that is to go is taken out by hand, in a commit
that says who was told.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import public_names
from tests.support.daemon import running_daemon

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def now() -> dict[str, Any]:
    return public_names.found()


@pytest.mark.parametrize("kind", public_names.recorded())
def test_none_is_gone(kind: str, now: dict[str, Any]) -> None:
    assert not public_names.gone(public_names.recorded()[kind], now[kind], kind)


@pytest.mark.parametrize("module", ["profd.offline", "profd.main"])
def test_modules_are_run_by_name(module: str) -> None:
    done = subprocess.run([sys.executable, "-m", module, "--help"], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_scripts_are_installed_beside_the_interpreter() -> None:
    for name in public_names.recorded()["console scripts"]:
        script = Path(sys.executable).with_name(name)
        done = subprocess.run([script, "--version"], capture_output=True, check=False)
        assert done.returncode == 0, done.stderr


def test_a_settings_file_with_every_key_is_read(tmp_path: Path) -> None:
    """Of both places: a daemon that reads a key of the file reads its variable, too."""
    values = {
        "store_bytes": '"1GiB"', "workers": "2", "metrics": '"off"', "log_level": '"info"', "log_format": '"json"',
        "kineto.abstract": "false", "kineto.sender_filter": '"off"',
        "sdk.arena_bytes": '"16MiB"', "gpu.collector": '"native"',
        "gpu.cuda_graphs": '"nodes"', "gpu.detach": "false", "gpu.process_metrics": "false", "gpu.pm_sampling_us": "0",
        "torch.build": '"off"', "audit.copy": '"off"',
    }  # fmt: skip
    keys = public_names.recorded()["configuration"]
    lines: dict[str, list[str]] = {}
    for key in keys:
        table, _, name = key.rpartition(".")
        lines.setdefault(table, []).append(f"{name} = {values.get(key, chr(34) * 2)}")
    text = "\n".join(lines.pop("")) + "".join(f"\n[{table}]\n" + "\n".join(rest) for table, rest in lines.items())
    (tmp_path / "profd.toml").write_text(text)
    environ = {variable: values[key].strip('"') for key, variable in keys.items() if key in values}
    with running_daemon("--config", str(tmp_path / "profd.toml"), environ=environ) as daemon:
        assert daemon.stop() == 0, daemon.log


@pytest.mark.parametrize("key", ["no_such_key", "kineto.no_such_key"])
def test_a_key_that_nobody_knows_is_refused(tmp_path: Path, key: str) -> None:
    """So that the test above means something."""
    table, _, name = key.rpartition(".")
    (tmp_path / "profd.toml").write_text((f"[{table}]\n" if table else "") + f"{name} = 1\n")
    with pytest.raises(AssertionError, match="no_such_key"), running_daemon("--config", str(tmp_path / "profd.toml")):
        pass
