"""`sbatch --profd=iterations:5@step:100` of an unchanged torch script: two nodes, four ranks over gloo."""

import sys
from contextlib import ExitStack

import pytest

from tests.integration.slurm.test_plugin import HEADER, built
from tests.support import slurm, slurm_nodes
from tests.support.long import long
from tests.support.waiting import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(slurm.missing()), reason=f"no Slurm here ({', '.join(slurm.missing())}): slurm-wlm, munge"),
    pytest.mark.skipif(not HEADER.exists(), reason="no headers of Slurm here: libslurm-dev"),
]

NODES = ("n1", "n2")
STEP, STEPS = 100, 5
SECONDS = 240

# Knows nothing of profd. Ends once the file beside it is there.
TRAIN = """
import os, time
import torch
import torch.distributed as dist
rank, folder = int(os.environ["SLURM_PROCID"]), os.path.dirname(__file__)
os.environ["GLOO_SOCKET_IFNAME"] = "lo"
torch.set_num_threads(1)
ranks = int(os.environ["SLURM_NTASKS"])
dist.init_process_group("gloo", init_method=f"file://{folder}/met", rank=rank, world_size=ranks)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
done = torch.zeros(1)
steps = 0
while not done:
    optimizer.zero_grad()
    model(torch.randn(16, 64)).square().mean().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
    steps += 1
    time.sleep(0.02)
    done = torch.tensor([float(os.path.exists(f"{folder}/done"))])
    dist.all_reduce(done)
print("rank", rank, "ends", flush=True)
"""
BATCH = "#!/bin/sh\nexec srun --overcommit --ntasks=4 --ntasks-per-node=2 {python} {folder}/train.py\n"


@pytest.fixture(scope="module")
def cluster(folder):
    if why := slurm_nodes.why_not():
        pytest.skip(why)
    plugin = {"plugstack.conf": built(folder)}
    with (
        slurm.cluster_of(*NODES, more="PlugStackConfig={folder}/plugstack.conf", files=plugin, apart=True) as found,
        ExitStack() as stack,
    ):
        for node in NODES:
            stack.enter_context(found.node(node).profd(folder, PROFD_SDK_ARENA_BYTES="24MiB"))
        yield found


@long
def test_an_unchanged_job_records_the_same_steps_on_all_its_nodes(cluster, folder):
    pytest.importorskip("torch", reason="needs torch")
    (folder / "train.py").write_text(TRAIN)
    (folder / "job.sh").write_text(BATCH.format(python=sys.executable, folder=folder))
    told = [f"--profd=iterations:{STEPS}@step:{STEP}", "--nodes=2", "--ntasks=4", "--overcommit"]
    files = [f"--output={folder}/out", f"--error={folder}/err"]
    number = cluster.asked("sbatch", "--parsable", *told, *files, str(folder / "job.sh"))
    try:
        until(lambda: all(map(ended, captures(cluster))), f"all nodes have recorded; see {folder}/err", SECONDS)
        (named,) = {line.split()[-1] for line in (folder / "err").read_text().splitlines() if "PROFD_CAPTURE" in line}
        assert "4 stored" in profctl(cluster, folder, "show", named, "--via", "slurm", "--job", number)
        profctl(cluster, folder, "collect", named, "--via", "slurm", "--job", number, "--to", str(folder))
        assert "asked for by the program" in cluster.node("n1").profctl("show", named).stdout
    finally:
        (folder / "done").touch()
    until(lambda: not cluster.asked("squeue", "--noheader"), "the job ends by itself")
    out, err = ((folder / name).read_text() for name in ("out", "err"))
    assert sorted(out.splitlines()) == [f"rank {rank} ends" for rank in range(4)], err
    ranks = [path.parent.parent.name for path in (folder / f"capture={named}").rglob("meta.json")]
    assert sorted(ranks) == [f"rank={rank}" for rank in range(4)]
    found = captures(cluster)
    assert sorted(target["rank"] for targets in found for target in targets) == [0, 1, 2, 3]
    for targets in found:
        for target in targets:
            assert (target["state"], target["lost"], target["job"]) == ("stored", [], number), target
            assert target["steps"]["first"] == STEP - 1, target  # one more on each side
            assert target["steps"]["count"] >= STEPS + 2, target


def profctl(cluster, folder, *arguments):
    """What it says on the login node, where it succeeds."""
    return cluster.asked("env", f"XDG_STATE_HOME={folder}/xdg", *slurm_nodes.PROFCTL, *arguments)


def captures(cluster):
    """Targets of each node's captures."""
    return [
        [target for capture in cluster.node(node).answer("captures") for target in capture["targets"]] for node in NODES
    ]


def ended(targets):
    live = ("requested", "armed", "recording", "draining", "collating")
    return len(targets) == 2 and not any(target["state"] in live for target in targets)
