"""`profd --check`: each thing that would keep a daemon from starting is found before it starts."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from profd import main
from profd.host import config
from profd.host.doctor import Finding
from profd.host.preflight import Preflight


def found(tmp_path: Path, **settings: Any) -> dict[str, Finding]:
    flags = {"state_dir": str(tmp_path / "state"), "socket": str(tmp_path / "s" / "profd.sock"), "metrics": "off"}
    loaded = config.load({**flags, **settings}, {}, user=True)
    return {finding.name: finding for finding in Preflight(loaded).findings()}


def test_a_start_that_would_succeed_has_no_problem_and_makes_nothing(tmp_path: Path) -> None:
    assert {finding.verdict for finding in found(tmp_path).values()} == {"ok"}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("setting", ["admin_group", "socket_group"])
def test_an_unknown_group(tmp_path: Path, setting: str) -> None:
    finding = found(tmp_path, **{setting: "no-such"})[setting.replace("_", " ")]
    assert finding.verdict == "problem"
    assert "no-such" in finding.detail
    assert finding.fix.startswith("Create it (groupadd no-such)")


def test_a_file_where_a_directory_is_to_be(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    finding = found(tmp_path)["state directory"]
    assert (finding.verdict, finding.detail) == ("problem", f"{tmp_path / 'state'} is not a directory")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert found(tmp_path)["state directory"].verdict == "problem"


def test_a_directory_that_everybody_may_write_into(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(0o777)
    finding = found(tmp_path)["state directory"]
    assert finding.verdict == "problem"
    assert "chmod go-w" in finding.fix


def test_a_file_where_a_socket_is_to_be(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "control.sock").write_text("")
    finding = found(tmp_path)["control socket"]
    assert (finding.verdict, "is not a socket" in finding.detail) == ("problem", True)


def test_a_port_of_somebody_else_is_a_problem_where_it_was_asked_for(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        finding = found(tmp_path, metrics=f"127.0.0.1:{taken.getsockname()[1]}")["metrics"]
    assert (finding.verdict, "Address already in use" in finding.detail) == ("problem", True)


def test_captures_that_are_switched_off(tmp_path: Path) -> None:
    (tmp_path / "off").write_text("maintenance")
    finding = found(tmp_path, disabled_file=str(tmp_path / "off"))["captures"]
    assert (finding.verdict, "maintenance" in finding.detail) == ("warning", True)


def test_a_store_that_cannot_fit(tmp_path: Path) -> None:
    assert found(tmp_path, store_bytes="9000TiB")["disk"].verdict == "warning"


@pytest.mark.skipif(os.geteuid() != 0, reason="a daemon for every user is root's")
@pytest.mark.parametrize(("held", "verdict"), [("c3", "warning"), ("c1", "problem")])
def test_a_root_without_capabilities_is_told_which(held: str, verdict: str, tmp_path: Path) -> None:
    status = tmp_path / "status"
    # CHOWN, SETGID, SETUID; and DAC_OVERRIDE, without which none starts
    status.write_text(f"CapEff:\t00000000000000{held}\n")
    loaded = config.load({"state_dir": str(tmp_path), "socket": str(tmp_path / "s"), "metrics": "off"}, {})
    checks = {finding.name: finding for finding in Preflight(loaded, status).findings()}
    assert checks["privileges"].verdict == verdict
    assert "no CAP_SYS_PTRACE" in checks["privileges"].detail
    assert "--cap-add=SYS_PTRACE" in checks["privileges"].fix
    status.write_text("CapEff:\t0000000000080000\n")
    assert Preflight(loaded, status).findings()[1].verdict == "problem"


def test_what_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--check", "--user", "--state-dir", str(tmp_path / "state"), "--socket", str(tmp_path / "sock")]
    assert main.main([*flags, "--metrics", "off"]) == 0
    text = capsys.readouterr().out
    assert f"state_dir = {str(tmp_path / 'state')!r}  (the command line)" in text
    assert text.endswith("profd would start\n")
    (tmp_path / "state").write_text("")
    assert main.main([*flags, "--metrics", "off", "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert (answer["ok"], answer["mode"]) == (False, "user")
    assert {"key": "metrics", "value": "off", "from": "the command line"} in answer["settings"]
    assert [check["name"] for check in answer["checks"] if check["verdict"] == "problem"] == ["state directory"]


def test_json_belongs_to_check(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main.main(["--json"])
    assert "--json belongs to --check" in capsys.readouterr().err
