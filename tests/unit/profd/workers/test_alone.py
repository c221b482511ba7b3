"""What root's commands without a daemon decode: with the files of one job, and no other right of root's."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from profd import offline
from profd.errors import Denied, JobFailed
from profd.kernel.identity import SAME, WorkerIdentity, unreadable
from profd.store.store import Store, StoreLimits
from profd.workers import confine, landlock
from profd.workers.alone import Alone

from tests.support.readable import NOBODY
from tests.unit.profd.store.stored import ANN, BOB, add
from tests.unit.profd.store.test_upgrade import OLD, put

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="other users' files take root"),
    pytest.mark.skipif(not landlock.abi(), reason="the kernel has no Landlock"),
]

KNOWN = {"reached": "tests.support.jobs:reached"}


@pytest.fixture
def strange(tmp_path: Path) -> Path:
    """A file of another uid, who alone may read it."""
    path = tmp_path / "strange"
    path.write_text("secret")
    path.chmod(0o600)
    os.chown(path, BOB.uid, BOB.gid)
    return path


async def test_a_job_reaches_its_own_files_and_no_other(tmp_path: Path, strange: Path) -> None:
    trace, staging = tmp_path / "trace", tmp_path / "staging"
    trace.mkdir()
    staging.mkdir()
    (trace / "meta.json").write_text("{}")
    paths = [str(trace / "meta.json"), str(strange), "/etc/shadow"]
    found = await Alone(KNOWN, ["trace_dir"]).run(
        "reached", {"trace_dir": str(trace), "staging": str(staging), "paths": paths}
    )
    assert found["ends"] == ["worked", "EACCES", "EACCES"]
    assert found["changed"] == ["EACCES", "worked"]
    assert not Path(found["scratch"]).exists()


async def test_a_job_has_no_capabilities_on_what_it_may_read(tmp_path: Path, strange: Path) -> None:
    """Landlock lets it read there; the mode does not."""
    found = await Alone(KNOWN, ["trace_dir"]).run("reached", {"trace_dir": [str(tmp_path)], "paths": [str(strange)]})
    assert (found["ends"], found["uid"]) == (["EACCES"], 0)


async def test_traces_of_thousands_of_ranks_can_be_named(tmp_path: Path) -> None:
    args = {"trace_dir": [str(tmp_path / str(number) / ("x" * 100)) for number in range(4096)], "paths": []}
    assert (await Alone(KNOWN, ["trace_dir"]).run("reached", args))["uid"] == 0


async def test_another_users_folder_is_read_as_that_user(tmp_path: Path) -> None:
    if unreadable(NOBODY, NOBODY):
        pytest.skip("another user cannot read our Python")
    found = await Alone(KNOWN, [], WorkerIdentity(NOBODY, NOBODY)).run("reached", {"paths": []})
    assert found["uid"] == NOBODY


async def test_without_confinement_nothing_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confine, "FILES", "what this kernel has not")
    with pytest.raises(JobFailed, match=r"what this kernel has not: copy the store .* as that user"):
        await Alone(KNOWN, [], SAME).run("reached", {"paths": []})


def store_of(tmp_path: Path) -> Path:
    root = tmp_path / "state"
    store = Store(root, StoreLimits(free_share_min=0.0))
    add(store, ANN)
    store.close()
    return root


def test_questions_of_root_are_confined(
    tmp_path: Path, strange: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(offline._JOBS, "top", f"tests.support.jobs:reaching/{strange}")
    assert offline.run("top", store_of(tmp_path), offline.Request(b"{}")) is None
    assert json.loads(capfd.readouterr().out)["ends"] == ["EACCES"]


def test_an_upgrade_by_root_is_confined_and_a_trace_stays_its_owners(
    tmp_path: Path, strange: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = store_of(tmp_path)
    put(root, OLD[0])
    monkeypatch.setitem(offline._JOBS, "rewrite", f"tests.support.jobs:taken_over/{strange}")
    done = offline.run("upgrade", root, offline.Request(b"{}"))
    assert done == {"anew": [], "others": 1, "damaged": [f"trace {OLD[0]}: its owner_uid would be another"]}
    monkeypatch.undo()
    assert offline.run("upgrade", root, offline.Request(b"{}")) == {"anew": [OLD[0]], "others": 1, "damaged": []}


async def test_nothing_is_given_away_where_another_user_can_put_a_link_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIVEN a root shell with another user's TMPDIR WHEN their traces are read THEN no folder there is given to them.

    By a link in its place it would be any file of the host.
    """
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", BOB.uid, BOB.gid)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "theirs"))
    with pytest.raises(Denied, match="another user can exchange what is made there"):
        await Alone(KNOWN, [], WorkerIdentity(BOB.uid, BOB.gid)).run("reached", {"paths": []})
    assert not list((tmp_path / "theirs").iterdir())
