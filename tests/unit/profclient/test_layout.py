"""A capture as a directory of files: names that are escaped, and bundles that are not what they should be."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from profclient import layout
from profclient.errors import ClientError, UsageError
from profclient.layout import COMMIT_FILE, NULL, CaptureFolder, partition, write_capture

from tests.support.bundles import bundle

CAPTURE = "c0123456789ab"
TRACE = {"rank": 0, "host": "node0", "trace": "t1"}


FILES = {"profd-bundle": b"1\n", "t1/meta.json": b"{}", "t1/segment-00000.parquet": bytes(range(256)) * 5000}


def in_pieces(data: bytes, size: int = 1000) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


def written(into: Path, data: bytes, *traces: dict[str, Any]) -> Path:
    folder, _ = write_capture(into, CAPTURE, traces or [TRACE], in_pieces(data))
    return folder


def test_the_files_and_what_the_commit_says(tmp_path: Path) -> None:
    folder, size = write_capture(tmp_path / "new", CAPTURE, [TRACE], in_pieces(bundle(FILES)))
    place = folder / "host=node0/rank=0/trace=t1"
    assert {path.name: path.read_bytes() for path in place.iterdir()} == {
        name.removeprefix("t1/"): data for name, data in FILES.items() if "/" in name
    }
    (committed,) = json.loads((folder / COMMIT_FILE).read_text())["traces"]
    assert {**TRACE, "path": "host=node0/rank=0/trace=t1"}.items() <= committed.items()
    assert committed["files"]["meta.json"] == {"bytes": 2, "sha256": hashlib.sha256(b"{}").hexdigest()}
    assert size == 2 + 256 * 5000
    assert [path.name for path in (tmp_path / "new").iterdir()] == [f"capture={CAPTURE}"]
    with pytest.raises(UsageError, match="is there already"):
        written(tmp_path / "new", bundle(FILES))


@pytest.mark.parametrize(
    "value",
    ["../../etc", "a/b", "..", "x=y", "ümlaut", "100%", " ", "\n", "\ud800", "a b*?", "node-1.example.org", 7, None],
)
def test_a_name_is_one_directory_and_comes_back(value: object) -> None:
    text = partition("host", value)
    assert "/" not in text
    assert text.isascii()
    assert text.isprintable()
    assert unquote(text, errors="surrogatepass") == f"host={NULL if value is None else value}"


def test_a_name_that_no_directory_can_have(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="too long for the name of a directory"):
        written(tmp_path, bundle(FILES), {**TRACE, "host": "h" * 300})


def test_two_traces_of_one_rank_and_one_of_none(tmp_path: Path) -> None:
    both = {**FILES, "t2/meta.json": b"2", "t3/meta.json": b"3"}
    folder = written(
        tmp_path, bundle(both), TRACE, {**TRACE, "trace": "t2"}, {"rank": None, "host": None, "trace": "t3"}
    )
    found = sorted(str(path.parent.relative_to(folder)) for path in folder.glob("*/*/*/meta.json"))
    assert found == [f"host={NULL}/rank={NULL}/trace=t3", "host=node0/rank=0/trace=t1", "host=node0/rank=0/trace=t2"]


def sparse(size: int = 4096) -> bytes:
    """Its `meta.json` is zeros, none of which is in the archive."""
    stated = {"t1/meta.json": {"bytes": size, "sha256": hashlib.sha256(bytes(size)).hexdigest()}}
    stated["profd-bundle"] = {"bytes": 2, "sha256": hashlib.sha256(b"1\n").hexdigest()}
    manifest = json.dumps({"files": stated}).encode()
    data = bytearray(bundle({"profd-bundle": b"1\n", "t1/meta.json": b""}, manifest, tarfile.GNUTYPE_SPARSE))
    header = slice(at := data.index(b"t1/meta.json"), at + tarfile.BLOCKSIZE)
    block = data[header]
    block[483:495], block[148:156] = b"%011o\0" % size, b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    data[header] = block
    return bytes(data)


DAMAGED = {
    "cut": bundle(FILES)[:5000],
    "empty": b"",
    "no archive": b"x" * 4096,
    "without a manifest": bundle(FILES, b""),
    "a manifest of another": bundle(FILES, json.dumps({"files": {}}).encode()),
    "a manifest of nothing": bundle(FILES, b"[]"),
    "a path": bundle({**FILES, "t1/../../x": b"x"}),
    "an absolute path": bundle({**FILES, "/tmp/x": b"x"}),
    "hidden": bundle({**FILES, "t1/.bashrc": b"x"}),
    "a trace that nobody asked for": bundle({**FILES, "t9/meta.json": b"x"}),
    "a file of no trace": bundle({**FILES, "meta.json": b"x"}),
    "links": bundle(FILES, kind=tarfile.SYMTYPE),
    "zeros that do not come": sparse(),
    "no file of the trace": bundle({"profd-bundle": b"1\n"}),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_of_what_arrives_damaged_nothing_stays(tmp_path: Path, name: str) -> None:
    with pytest.raises(ClientError, match="arrived damaged"):
        written(tmp_path, DAMAGED[name])
    assert not [*tmp_path.rglob("*")]


def member(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    """The header of a member of so many bytes."""
    header = tarfile.TarInfo(name)
    header.size, header.type = size, kind
    return header.tobuf(tarfile.USTAR_FORMAT)


@pytest.mark.parametrize(
    "header",
    [
        pytest.param(member("x", 1 << 30, tarfile.XHDTYPE), id="pax"),
        pytest.param(member("x", 1 << 30, tarfile.GNUTYPE_LONGNAME), id="gnu"),
        pytest.param(member("MANIFEST.json", 1 << 30), id="manifest"),
    ],
)
def test_what_has_to_be_held_whole_is_not_read_where_it_is_large(tmp_path: Path, header: bytes) -> None:
    took = 0

    def sent() -> Iterator[bytes]:
        nonlocal took
        yield header
        while took < 16:
            took += 1
            yield b"[]," * 300_000

    with pytest.raises(ClientError, match="arrived damaged"):
        write_capture(tmp_path, CAPTURE, [TRACE], sent())
    assert took <= 1


def test_files_without_end_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "FILES_MAX", 40)
    sent = (member(f"t1/a{number}", 0) for number in itertools.count())
    with pytest.raises(ClientError, match="'t1/a40' is no file of a trace"):
        write_capture(tmp_path, CAPTURE, [TRACE], sent)


def test_of_what_ends_with_an_error_nothing_stays(tmp_path: Path) -> None:
    def breaks() -> Iterator[bytes]:
        yield bundle(FILES)[:3000]
        raise ClientError("the daemon has gone")

    with pytest.raises(ClientError, match="the daemon has gone"):
        write_capture(tmp_path, CAPTURE, [TRACE], breaks())
    assert not [*tmp_path.rglob("*")]


@pytest.mark.parametrize("at", ["", "/host=node0", "/host=node0/rank=0/trace=t1"])
def test_who_owns_the_directory_leads_it_nowhere(tmp_path: Path, at: str) -> None:
    into, others = tmp_path / "theirs", tmp_path / "others"
    others.mkdir()
    (others / "segment-00000.parquet").write_text("precious")

    def exchanged() -> Iterator[bytes]:
        data = bundle(FILES)
        yield data[:2048]  # up to the header of the first file of the trace
        (part,) = into.glob(".capture=*")
        place = f"{part}{at}"
        os.rename(place, tmp_path / "taken")
        if at.endswith("t1"):
            os.symlink(others, place)
        else:  # and below it all that is expected
            trace = Path(f"{part}/host=node0/rank=0/trace=t1")
            trace.parent.mkdir(parents=True)
            trace.symlink_to(others)
        yield data[2048:]

    if at:
        with pytest.raises(UsageError, match="theirs cannot be written: Not a directory"):
            write_capture(into, CAPTURE, [TRACE], exchanged())
    else:
        write_capture(into, CAPTURE, [TRACE], exchanged())
    assert {path.name: path.read_text() for path in others.iterdir()} == {"segment-00000.parquet": "precious"}
    assert not [*into.glob(".capture=*")]


def test_what_is_taken_out_again_is_reached_through_no_link(tmp_path: Path) -> None:
    others = tmp_path / "others" / "rank=0" / "trace=t1"
    others.mkdir(parents=True)
    (others / "segment-00000.parquet").write_text("precious")
    with CaptureFolder(tmp_path / "theirs", CAPTURE) as folder:
        (row,) = folder.add([TRACE], iter([bundle(FILES)]))
        host = folder.partial / "host=node0"
        host.rename(tmp_path / "taken")
        host.symlink_to(tmp_path / "others")
        with pytest.raises(UsageError, match="Not a directory"):
            folder.remove(row["path"])
    assert (others / "segment-00000.parquet").read_text() == "precious"
