"""Jobs from cgroups."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from profd.targets import cgroup

POD = "0a1b2c3d-1111-2222-3333-444455556666"


@pytest.mark.parametrize(
    ("text", "job"),
    [
        ("0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0\n", "4711"),
        ("0::/system.slice/node7_slurmstepd.scope/job_12/step_batch\n", "12"),
        ("12:cpu:/slurm/uid_1000/job_99/step_0\n3:memory:/user.slice\n", "99"),
        ("4:freezer:/slurm_node3/uid_1000/job_98\n", "98"),
        ("0::/user.slice/job_5\n", ""),
        ("0::/system.slice/slurmd.service\n", ""),
        ("", ""),
    ],
)
def test_slurm_job(text: str, job: str) -> None:
    assert cgroup.slurm_job(text) == job


@pytest.mark.parametrize(
    "text",
    [
        f"0::/kubepods/burstable/pod{POD}/abcdef\n",
        f"0::/kubepods.slice/kubepods-pod{POD.replace('-', '_')}.slice/cri-containerd-ab.scope\n",
    ],
)
def test_kubernetes_pod(text: str) -> None:
    assert cgroup.kubernetes_pod(text) == POD


def test_no_pod() -> None:
    assert cgroup.kubernetes_pod("0::/podman/podcast\n") == ""


@pytest.mark.parametrize(
    ("quotas", "cores"),
    [
        ({}, math.inf),
        ({"": "max 100000"}, math.inf),
        ({"system.slice/profd.service": "200000 100000\n"}, 2.0),
        ({"system.slice/profd.service": "max 100000\n", "system.slice": "50000 100000\n"}, 0.5),
        ({"system.slice/profd.service": "200000 100000\n", "": "150000 100000\n"}, 1.5),
        ({"system.slice/profd.service": "a word of a later kernel"}, math.inf),
    ],
)
def test_how_many_cores_are_allowed(tmp_path: Path, quotas: dict[str, str], cores: float) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("4:cpu:/v1\n0::/system.slice/profd.service\n")
    mounted = tmp_path / "cgroup"
    (mounted / "system.slice/profd.service").mkdir(parents=True)
    for folder, text in quotas.items():
        (mounted / folder / "cpu.max").write_text(text)
    assert cgroup.cores_allowed(tmp_path / "proc", mounted) == cores


def test_without_cgroups_of_v2_all_are(tmp_path: Path) -> None:
    assert cgroup.cores_allowed(tmp_path, tmp_path) == math.inf
