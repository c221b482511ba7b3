"""Headroom from a made-up /proc and cgroup tree."""

from __future__ import annotations

from pathlib import Path

from profd.capture.estimate import HostHeadroom
from profd.targets.process import ProcessId


def tree(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def headroom(root: Path) -> HostHeadroom:
    return HostHeadroom(root, root / "proc", root / "cgroup")


def test_the_tightest_of_host_and_cgroups(tmp_path: Path) -> None:
    tree(
        tmp_path,
        {
            "proc/meminfo": "MemTotal: 100 kB\nMemAvailable:   50 kB\n",
            "proc/7/cgroup": "0::/job/step\n",
            "cgroup/job/memory.max": "30000\n",
            "cgroup/job/memory.current": "10000\n",
            "cgroup/job/step/memory.max": "max\n",
            "cgroup/job/step/memory.current": "9000\n",
        },
    )
    found = headroom(tmp_path).of(ProcessId(7, 1))
    assert found.memory_bytes == 20000
    assert found.disk_bytes is not None
    assert headroom(tmp_path).of(ProcessId(8, 1)).memory_bytes == 50 * 1024


def test_what_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    found = HostHeadroom(tmp_path / "none", tmp_path, tmp_path).of(ProcessId(7, 1))
    assert (found.memory_bytes, found.disk_bytes) == (None, None)


def test_a_path_out_of_the_tree_is_not_followed(tmp_path: Path) -> None:
    tree(
        tmp_path,
        {
            "proc/7/cgroup": "0::/../../secret\n",
            "secret/memory.max": "1\n",
            "secret/memory.current": "0\n",
            "proc/8/cgroup": "12:memory:/old\n",
        },
    )
    assert headroom(tmp_path).of(ProcessId(7, 1)).memory_bytes is None
    assert headroom(tmp_path).of(ProcessId(8, 1)).memory_bytes is None
