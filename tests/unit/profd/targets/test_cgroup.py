"""Jobs from cgroups."""

from __future__ import annotations

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
