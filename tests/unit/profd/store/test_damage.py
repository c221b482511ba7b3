"""Damaged traces are named, whatever the damage; a full disk leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from profd.errors import BadTrace, NotFound, ProfdError
from profd.segments.meta import FORMAT, META_FILE, TraceMeta, decode_meta, encode_json
from profd.segments.reader import TraceReader

from tests.unit.profd.store.stored import write_trace

ROOT = Path(__file__).parents[4]


@pytest.fixture
def trace(tmp_path):
    directory = tmp_path / "trace"
    directory.mkdir()
    write_trace(directory, rows=500)
    return directory


def test_every_flipped_byte_is_noticed_or_harmless(trace):
    """Pages carry checksums; what is not covered by one must not change a row unnoticed, or crash."""
    path = trace / "segment-00000.parquet"
    whole = path.read_bytes()
    reference = TraceReader(trace).read()
    noticed = 0
    for offset in range(0, len(whole), max(1, len(whole) // 100)):
        path.write_bytes(whole[:offset] + bytes([whole[offset] ^ 0xFF]) + whole[offset + 1 :])
        try:
            table = TraceReader(trace).read()
        except BadTrace:
            noticed += 1
        else:
            assert table.columns["start"].tolist() == reference.columns["start"].tolist()
    assert noticed > 70


@pytest.mark.parametrize("kept", [0, 1, 4, 100, -1, -8])
def test_truncated_segment_is_named(trace, kept):
    path = trace / "segment-00000.parquet"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(BadTrace, match="segment-00000"):
        TraceReader(trace).read()


def test_missing_segment_is_damage_and_missing_trace_is_not(trace):
    reader = TraceReader(trace)
    (trace / "segment-00000.parquet").unlink()
    with pytest.raises(BadTrace, match="missing"):
        reader.read()
    shutil.rmtree(trace)
    with pytest.raises(NotFound, match="removed"):
        reader.read()
    with pytest.raises(NotFound):
        TraceReader(trace)


def test_segment_of_another_trace_is_noticed(trace, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    write_trace(other, rows=3)
    shutil.copy(other / "segment-00000.parquet", trace)
    with pytest.raises(BadTrace, match="3 rows"):
        TraceReader(trace).read()


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"events": "x"}', b"\xff", b'{"segments": [{}]}', b"[" * 10**5])
def test_damaged_meta_is_named(trace, text):
    (trace / META_FILE).write_bytes(text)
    with pytest.raises(BadTrace, match=META_FILE):
        TraceReader(trace)


def test_meta_of_a_newer_format_is_refused_and_of_a_newer_release_is_not():
    with pytest.raises(BadTrace, match="upgrade"):
        decode_meta(encode_json(TraceMeta(format=FORMAT + 1)), "x")
    with pytest.raises(BadTrace, match="upgrade"):
        decode_meta(b'{"columns": null, "segments": "elsewhere", "format": 99}', "x")
    with pytest.raises(BadTrace, match="is damaged"):
        decode_meta(b'{"columns": null, "format": 1}', "x")
    assert decode_meta(b'{"events": 3, "colour": "blue"}', "x").events == 3


def test_meta_holds_whatever_foreign_traces_bring():
    meta = TraceMeta(top_level={"x": 1 << 70, "y": ["\ud800"], "z": {"deep": None}})
    assert decode_meta(encode_json(meta), "x") == meta


FILLING = """
import sys
from pathlib import Path
from profd.errors import Exhausted
from profd.segments.meta import TraceMeta
from profd.store.store import Store, StoreLimits
from tests.unit.profd.store.stored import write_trace, whole_traces
store = Store(Path(sys.argv[1]), StoreLimits(free_share_min=0.0, share=1.0))
try:
    for _ in range(10_000):
        staging = store.staging()
        try:
            write_trace(staging, rows=20_000)
            store.adopt(staging, TraceMeta(trace=store.new_id()))
        finally:
            store.discard(staging)
except Exhausted as error:
    print(error)
    print(len(list(whole_traces(store))))
"""


SMALL_FILES = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
"""


def fill(directory: Path, before: str = "") -> tuple[str, int]:
    command: list[Any] = [sys.executable, "-c", before + FILLING, directory]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    message, count = done.stdout.splitlines()
    return message, int(count)


def test_file_too_large_for_the_disk_leaves_nothing(tmp_path):
    message, count = fill(tmp_path / "state", SMALL_FILES)
    assert "File too large" in message
    assert count == 0
    assert not list((tmp_path / "state" / "traces").iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small tmpfs takes root")
def test_full_disk_keeps_what_was_stored(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", disk], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"tmpfs cannot be mounted here: {mounted.stderr.decode().strip()}")
    try:
        message, count = fill(disk / "state")
        assert "No space left" in message or "disk is full" in message  # ours, or SQLite's words
        assert count >= 1
        assert len(list((disk / "state" / "traces").iterdir())) == count
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def test_errors_are_typed(trace):
    """Nothing but ProfdErrors comes out of a damaged directory."""
    path = trace / "segment-00000.parquet"
    path.unlink()
    path.mkdir()
    with pytest.raises(ProfdError):
        TraceReader(trace).read()
