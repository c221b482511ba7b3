"""`start --job` where no daemon is: a login node of Slurm most likely."""

import pytest
from profclient.cli.commands import start
from profclient.errors import UnreachableError
from profproto.v1 import capture_pb2


@pytest.mark.parametrize(
    ("jobs", "squeue", "told"), [(["7"], "/usr/bin/squeue", True), (["7"], None, False), ([], "/usr/bin/squeue", False)]
)
def test_the_way_to_a_job_of_slurm_is_told(monkeypatch, jobs, squeue, told):
    monkeypatch.setattr("shutil.which", lambda name: squeue)
    with pytest.raises(UnreachableError) as error, start._of_slurm(capture_pb2.Selector(jobs=jobs)):
        raise UnreachableError("no profd listens at /run/profd/profd.sock.")
    assert ("Slurm runs no such job" in str(error.value)) == told
