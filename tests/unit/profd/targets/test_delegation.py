"""Cgroups of the daemon's children: which there may be, with which limits; and real ones, where there are any."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from profd.kernel.joining import join
from profd.limits import GiB
from profd.targets import delegation as module
from profd.targets.delegation import ChildKind, Delegation, bounds, delegated

from tests.support.waiting import until


def made_up(folder: Path, **files: str) -> Path:
    """A /proc of this process, whose cgroup is `folder`/cgroup/service."""
    group = folder / "cgroup" / "service"
    group.mkdir(parents=True)
    known = {"cgroup.controllers": "cpu memory pids\n", "cgroup.procs": f"{os.getpid()}\n", **files}
    for name, text in {"cgroup.subtree_control": "", **known}.items():
        (group / name).write_text(text)
    proc = folder / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "cgroup").write_text("4:memory:/a\n0::/slice/service\n")
    mounts = [
        f"25 1 8:1 / {folder} rw - ext4 /dev/a rw",
        f"28 25 0:26 /.. {folder}/another rw - cgroup2 cgroup2 rw",
        f"29 25 0:26 / {folder}/root ro - cgroup2 cgroup2 rw",
        f"30 25 0:26 /slice {folder}/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw",
    ]
    (proc / "self" / "mountinfo").write_text("".join(f"{line}\n" for line in mounts))
    (proc / "meminfo").write_text("MemTotal:       20971520 kB\n")
    return proc


@pytest.mark.parametrize(
    ("files", "marked", "why"),
    [
        ({}, True, ""),
        ({}, False, "is not left to profd"),
        ({"cgroup.controllers": "cpu pids"}, True, "no limits of memory"),
        ({"cgroup.procs": f"{os.getpid()}\n1\n"}, True, "others are in"),
    ],
    ids=["alone", "not delegated", "no memory", "with others"],
)
def test_a_cgroup_to_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], marked: bool, why: str
) -> None:
    monkeypatch.setattr(module, "_is_delegated", lambda group: marked)
    found = delegated(made_up(tmp_path, **files))
    if why:
        assert isinstance(found, str)
        assert why in found
    else:
        assert found == tmp_path / "cgroup" / "service"


@pytest.mark.parametrize("cgroup", ["", "0::/elsewhere\n"], ids=["v1", "no such"])
def test_no_cgroup_that_can_be_seen(tmp_path: Path, cgroup: str) -> None:
    proc = made_up(tmp_path)
    (proc / "self" / "cgroup").write_text(cgroup)
    found = module.opened(proc)
    assert "cgroup" in found.why_not
    assert [found.group(kind, 7) for kind in ChildKind] == ["", "", ""]
    assert not found.bounds


def test_groups_of_kinds_and_of_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_is_delegated", lambda group: True)
    service = tmp_path / "cgroup" / "service"
    proc = made_up(tmp_path, **{"memory.max": str(10 * GiB)})
    found = module.opened(proc)
    assert found.why_not == ""
    assert found.bounds == bounds(10 * GiB)  # less than the host has
    assert (service / "daemon" / "cgroup.procs").read_text() == "0"
    enabled = [service, service / "samplers", service / "builds"]
    assert [(each / "cgroup.subtree_control").read_text() for each in enabled] == ["+memory +pids"] * 3
    for kind in (ChildKind.SAMPLERS, ChildKind.BUILDS):
        of = found.bounds[kind]
        group = Path(found.group(kind, 7))
        assert group == service / kind.value / "7"
        assert (group / "memory.max").read_text() == str(of.user_memory)
        assert (group / "pids.max").read_text() == str(of.user_tasks)
        assert (group.parent / "memory.max").read_text() == str(of.memory)
    assert found.group(ChildKind.ERRANDS) == str(service / "errands")


def test_groups_of_users_that_are_empty_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHILD_GROUP_IDLE_SECONDS", 0.0)
    monkeypatch.setattr(module, "CHILD_GROUPS_MAX", 2)
    monkeypatch.setattr(module, "_make", lambda group, memory, tasks: group.mkdir(parents=True, exist_ok=True))
    found = Delegation(tmp_path, memory=GiB)
    first, second = (Path(found.group(ChildKind.SAMPLERS, uid)) for uid in (1, 2))
    assert (first.exists(), second.exists()) == (False, True)
    # AND one that is not stays, and counts
    (second / "member").mkdir()
    third = Path(found.group(ChildKind.BUILDS, 3))
    (third / "member").mkdir()
    with pytest.raises(OSError, match="2 users have processes of profd"):
        found.group(ChildKind.SAMPLERS, 4)


@pytest.mark.parametrize("memory", [1 << 30, 4 << 30, 12 << 30, 1 << 40])
def test_most_of_the_tenths_are_never_given_away(memory: int) -> None:
    found = bounds(memory)
    assert sum(of.memory for of in found.values()) <= 0.7 * memory
    assert all(of.user_memory <= of.memory and of.user_tasks <= of.tasks for of in found.values())


def mounted() -> Path | None:
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, where, kind, *_ = line.split()
        if kind == "cgroup2" and os.geteuid() == 0:
            return Path(where)
    return None


CGROUPS = mounted()


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """An empty one of the test's own."""
    assert CGROUPS is not None
    group = CGROUPS / f"profd-test-{secrets.token_hex(4)}"
    group.mkdir()
    try:
        yield group
    finally:
        until(lambda: removed(group), "it is empty")


def removed(group: Path) -> bool:
    for folder, _, _ in os.walk(group, topdown=False):
        with suppress(OSError):
            os.rmdir(folder)
    return not group.exists()


JOINS = "import sys; from profd.kernel.joining import join; join(sys.argv[1]); print(open('/proc/self/cgroup').read())"


@pytest.mark.skipif(CGROUPS is None, reason="no cgroup2 file system is mounted, or not root")
def test_a_child_joins(cgroup: Path) -> None:
    told = subprocess.run([sys.executable, "-c", JOINS, str(cgroup)], capture_output=True, text=True, check=True)
    assert f"0::/{cgroup.name}\n" in told.stdout


def test_who_cannot_join_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        join(str(tmp_path / "none"))
    join("")


# A daemon with children in Alice's group, of which she has made one no likelier to be taken than the daemon.
HOGS = """
import subprocess, sys
from profd.targets import delegation
open(sys.argv[1] + "/cgroup.procs", "w").write("0")
found = delegation.opened()
assert not found.why_not, found.why_not
group = found.group(delegation.ChildKind.SAMPLERS, 5321)
child = "import sys; from profd.kernel.joining import join; join(sys.argv[1]); exec(sys.argv[2])"
hog = "open('/proc/self/oom_score_adj', 'w').write('0'); held = b'x' * (1 << 30)"
print(subprocess.run([sys.executable, "-c", child, group, hog]).returncode)
threads = "from threading import *; end = Event(); "
threads += "[Thread(target=end.wait, daemon=True).start() for _ in range(%d)]"
most = found.bounds[delegation.ChildKind.SAMPLERS].user_tasks
print(subprocess.run([sys.executable, "-c", child, group, threads % most], stderr=subprocess.DEVNULL).returncode)
print(subprocess.run([sys.executable, "-c", threads % 50]).returncode)
"""


@pytest.mark.skipif(
    CGROUPS is None or not {"memory", "pids"} <= set((CGROUPS / "cgroup.subtree_control").read_text().split()),
    reason="no cgroup2 with limits of memory and tasks for those below its root",
)
def test_a_childs_memory_and_tasks_are_not_the_daemons(cgroup: Path) -> None:
    os.setxattr(cgroup, module._MARK, b"1")
    (cgroup / "memory.max").write_text(str(GiB))
    done = subprocess.run([sys.executable, "-c", HOGS, str(cgroup)], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["-9", "1", "0"], done.stderr
    events = dict(line.split() for line in (cgroup / "memory.events.local").read_text().splitlines())
    assert int(events["oom_kill"]) == 0  # it was the child's own group that was full
