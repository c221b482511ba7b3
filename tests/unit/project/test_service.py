"""The unit of systemd: systemd understands all of it, and it grants what docs/security.md and docs/unit.md say."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from profd import limits
from profd.kernel.privileges import PRIVILEGES
from profd.limits import GiB
from profd.targets.delegation import bounds

ROOT = Path(__file__).resolve().parents[3]
UNIT = ROOT / "deploy" / "systemd" / "profd.service"
MOUNT = UNIT.with_name("run-profd-kineto.mount")
BY_DROP_IN = {"CAP_PERFMON"}  # only for hardware counters
PRIVILEGE = re.compile(r"CAP_[A-Z_]+")
EXPOSURE_MAX = 4.0
needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="no systemd-analyze here (apt-get install systemd)"
)


@needs_systemd
def test_systemd_has_nothing_to_say_of_it(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/usr/bin/profd", "/bin/true"))
    mount = tmp_path / MOUNT.name
    mount.write_bytes(MOUNT.read_bytes())
    words = ["systemd-analyze", "verify", str(unit), str(mount)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_it_wants_the_file_system_of_kinetos_sockets_and_begins_after_it() -> None:
    lines = UNIT.read_text().splitlines()
    assert [line.partition("=")[0] for line in lines if MOUNT.name in line and line[0] != "#"] == ["Wants", "After"]
    assert "Where=/run/profd/kineto" in MOUNT.read_text().splitlines()


def test_it_grants_the_privileges_that_are_explained() -> None:
    (granted,) = re.findall(r"^CapabilityBoundingSet=(.*)$", UNIT.read_text(), re.MULTILINE)
    rows = [line for line in (ROOT / "docs" / "security.md").read_text().splitlines() if line.startswith("| `CAP_")]
    explained = {name for row in rows for name in PRIVILEGE.findall(row.split("|")[1])}
    assert set(granted.split()) == explained - BY_DROP_IN - {"CAP_SYS_ADMIN"}  # the older name of PERFMON


def test_containers_are_given_the_same_privileges() -> None:
    granted = {privilege.name.removeprefix("CAP_") for privilege in PRIVILEGES}
    assert set(re.findall(r"--cap-add=([A-Z_]+)", (ROOT / "Dockerfile").read_text())) == granted
    (pod,) = re.findall(r"add: \[(.*)\]", (ROOT / "docs" / "clusters.md").read_text())
    assert set(pod.split(", ")) == granted


def test_its_tasks_are_enough_for_every_child() -> None:
    (tasks,) = re.findall(r"^TasksMax=(\d+)$", UNIT.read_text(), re.MULTILINE)
    assert limits.CAPTURES_ACTIVE_MAX * limits.STREAMER_TASKS_EACH_MAX <= limits.STREAMER_TASKS_MAX
    bounded = sum(of.tasks for of in bounds(GiB).values())
    itself = 256  # and workers
    assert limits.STREAMER_TASKS_MAX + limits.PORTERS_MAX + bounded + itself <= int(tasks)


@needs_systemd
def test_what_it_leaves_open_is_explained() -> None:
    words = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(UNIT)]
    said = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout
    marked = dict(re.findall(r"^. (\S+)\s+.*?([\d.]*)\s*$", said, re.MULTILINE))
    still_open = {name for name in marked if f"✗ {name} " in said}
    (exposure,) = re.findall(r"exposure level for \S+ ([\d.]+)", said)
    page = (ROOT / "docs" / "unit.md").read_text()
    explained = {name.replace("\\|", "|") for name in re.findall(r"^\| `(.+?)` \|", page, re.MULTILINE)}
    assert still_open == explained & set(
        marked
    )  # another systemd may mark fewer things, and name none that we do not know
    assert float(exposure) <= EXPOSURE_MAX
    assert f"**{exposure}**" in page or "systemd 252" not in version()


def version() -> str:
    """The first line of `systemd-analyze --version`."""
    return subprocess.run(["systemd-analyze", "--version"], capture_output=True, text=True, check=True).stdout
