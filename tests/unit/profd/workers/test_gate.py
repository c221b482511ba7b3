"""A worker's own directories, whatever it left in them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from profd.errors import BadInput, Exhausted, NotFound
from profd.kernel.identity import WorkerIdentity
from profd.workers import gate

SELF = WorkerIdentity(None, None, "")
DEPTH = 3000  # below the deepest that Python's own recursion comes to


def deep(folder: Path) -> None:
    """As a worker can leave it: deeper than any path may be long."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(DEPTH):
        os.mkdir("d", dir_fd=fd)
        inner = os.open("d", os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(fd)


def test_a_deep_tree_goes_with_its_worker(tmp_path: Path) -> None:
    gate.prepare(tmp_path / "gates", SELF)
    own = gate.Gate(tmp_path / "gates", SELF, ("trace_dir", "other_dir"))
    deep(own.scratch)
    own.dismiss(done=True)
    assert not any(own.scratch.iterdir())
    deep(own.outgoing)
    own.remove()
    assert not own.path.exists()


def test_a_deep_tree_of_an_earlier_daemon_keeps_none_from_starting(tmp_path: Path) -> None:
    gate.prepare(tmp_path / "gates", SELF)
    deep(gate.Gate(tmp_path / "gates", SELF).scratch)
    gate.prepare(tmp_path / "gates", SELF)
    assert not any((tmp_path / "gates").iterdir())


@pytest.fixture
def own(tmp_path: Path) -> gate.Gate:
    gate.prepare(tmp_path / "gates", SELF)
    return gate.Gate(tmp_path / "gates", SELF)


@pytest.fixture
def staging(tmp_path: Path) -> Path:
    path = tmp_path / "traces" / ".staging-1"
    path.mkdir(parents=True)
    return path


@pytest.mark.parametrize("done", [True, False])
def test_what_a_job_writes_comes_to_its_staging_directory_once_it_is_done(
    own: gate.Gate, staging: Path, done: bool
) -> None:
    there = Path(own.admit({"staging": str(staging)})["staging"])
    (there / "meta.json").write_text("x")
    assert [*gate.filled(own.path.parent, staging)] == [there]
    own.dismiss(done=done)
    assert not there.exists()
    assert [(path.name, path.lstat().st_nlink) for path in staging.iterdir()] == ([("meta.json", 1)] if done else [])


def test_a_directory_is_no_file_of_a_trace(own: gate.Gate, staging: Path) -> None:
    there = Path(own.admit({"staging": str(staging)})["staging"])
    (there / "more").mkdir()
    with pytest.raises(BadInput, match="left 'more', which is no file of a trace"):
        own.dismiss(done=True)
    assert not there.exists()


def test_a_link_in_the_place_of_its_directory_is_not_followed(own: gate.Gate, staging: Path, tmp_path: Path) -> None:
    """A worker with our uid could leave one, and what lies behind it is not the job's."""
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "meta.json").write_text("x")
    there = Path(own.admit({"staging": str(staging)})["staging"])
    there.rmdir()
    there.symlink_to(tmp_path / "others")
    with pytest.raises(Exhausted, match="Not a directory"):
        own.dismiss(done=True)
    assert not [*staging.iterdir()]
    assert (tmp_path / "others" / "meta.json").read_text() == "x"
    assert not there.is_symlink()


def test_more_files_than_a_trace_has_are_not_handed_over(
    own: gate.Gate, staging: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "STAGING_FILES_MAX", 2)
    there = Path(own.admit({"staging": str(staging)})["staging"])
    for number in range(3):
        (there / str(number)).touch()
    with pytest.raises(Exhausted, match="more than 2 files"):
        own.dismiss(done=True)
    assert len([*staging.iterdir()]) == 2


def test_several_traces_come_to_places_of_their_own(own: gate.Gate, tmp_path: Path) -> None:
    traces = [tmp_path / "traces" / name for name in ("a", "b")]
    for trace in traces:
        trace.mkdir(parents=True)
        (trace / "meta.json").write_text(trace.name)
    several = gate.Gate(own.path.parent, SELF, ("trace_dir",))
    admitted = several.admit({"trace_dir": [str(trace) for trace in traces]})["trace_dir"]
    assert [(Path(one) / "meta.json").read_text() for one in admitted] == ["a", "b"]
    assert all(Path(one).is_relative_to(several.incoming) for one in admitted)
    several.dismiss(done=True)
    assert not links_in(several.incoming)
    with pytest.raises(NotFound, match="Trace gone has just been removed"):
        several.admit({"trace_dir": [str(traces[0]), str(tmp_path / "traces" / "gone")]})


def test_what_may_be_beside_a_trace_comes_to_the_same_place(own: gate.Gate, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "traces" / name).mkdir(parents=True)
        (tmp_path / "traces" / name / "meta.json").touch()
    (tmp_path / "index" / "b").mkdir(parents=True)
    (tmp_path / "index" / "b" / "top").write_text("x")
    several = gate.Gate(own.path.parent, SELF, ("trace_dir",), {"trace_index": "trace_dir"})
    args = {f"trace_{what}": [str(tmp_path / folder / name) for name in ("a", "b")] for what, folder in PLACES}
    admitted = several.admit(args)
    assert admitted["trace_index"] == admitted["trace_dir"]
    there = [{path.name for path in Path(one).iterdir()} for one in admitted["trace_dir"]]
    assert there == [{"meta.json"}, {"meta.json", "top"}]
    several.dismiss(done=True)
    assert not links_in(several.incoming)
    assert (tmp_path / "index" / "b" / "top").stat().st_nlink == 1


@pytest.mark.parametrize("left", ["a link", "a directory", "a directory in the place of the links", "nothing"])
def test_a_directory_of_links_serves_one_job_after_another(own: gate.Gate, tmp_path: Path, left: str) -> None:
    """To remove a directory takes ext4 some ms. A worker with our uid could leave something in it."""
    for name in ("a", "b"):
        (tmp_path / "traces" / name).mkdir(parents=True)
        (tmp_path / "traces" / name / name).write_text(name)
    one = gate.Gate(own.path.parent, SELF, ("trace_dir",))
    first = Path(one.admit({"trace_dir": str(tmp_path / "traces" / "a")})["trace_dir"])
    before = first.stat().st_ino
    if left == "a link":
        (first / "beside").symlink_to(tmp_path / "traces")
    elif left == "a directory":
        (first / "beside").mkdir()
    elif left == "a directory in the place of the links":
        first.rename(first.with_name("moved"))
        first.symlink_to(tmp_path / "traces" / "a")
    one.dismiss(done=True)
    assert first.exists() == (left in ("a link", "nothing"))
    second = Path(one.admit({"trace_dir": str(tmp_path / "traces" / "b")})["trace_dir"])
    assert [path.name for path in second.iterdir()] == ["b"]
    assert (tmp_path / "traces" / "a" / "a").read_text() == "a"
    if left == "nothing":
        assert second.stat().st_ino == before


def test_few_directories_stay(own: gate.Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "_KEPT_MAX", 3)
    trace = tmp_path / "traces" / "a"
    trace.mkdir(parents=True)
    (trace / "meta.json").touch()
    several = gate.Gate(own.path.parent, SELF, ("trace_dir",))
    for _ in range(2):
        admitted = several.admit({"trace_dir": [str(trace)] * 5})["trace_dir"]
        assert all((Path(one) / "meta.json").exists() for one in admitted)
        several.dismiss(done=True)
        assert [Path(one).exists() for one in admitted] == [False, False, True, True, True]
        assert not links_in(several.incoming)
    assert trace.joinpath("meta.json").stat().st_nlink == 1


def links_in(place: Path) -> list[Path]:
    """What a worker finds there."""
    return [path for path in place.rglob("*") if not path.is_dir()]


PLACES = (("dir", "traces"), ("index", "index"))
