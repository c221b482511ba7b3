"""The append-only file: torn tails, full disks, kill -9."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from profd.attached.ingest.chunk import Chunk
from profd.attached.ingest.journal_file import JournalFile, JournalFull
from profd.disk.space import Space
from profd.errors import Exhausted

from tests.support.ingest import chunk_bytes, claim_of, names_of


def append(file: JournalFile, data: bytes) -> None:
    file.append(memoryview(data))


def recovered(path: Path) -> tuple[list[Chunk], int]:
    """The chunks that are left, and the bytes that were cut."""
    found: list[Chunk] = []
    file = JournalFile(path)
    cut = file.recover(lambda chunk: found.append(chunk) or True)
    assert file.bytes == path.stat().st_size
    file.close()
    return found, cut


def test_what_was_appended_is_there(tmp_path: Path) -> None:
    file = JournalFile(tmp_path / "f")
    append(file, chunk_bytes(0, 0) + chunk_bytes(0, 1))
    append(file, chunk_bytes(1, 0))
    file.sync()
    file.close()
    assert names_of(tmp_path / "f") == [(0, 0), (0, 1), (1, 0)]
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o600


def test_closed_file_takes_nothing(tmp_path: Path) -> None:
    file = JournalFile(tmp_path / "f")
    file.close()
    file.close()
    file.sync()
    with pytest.raises(JournalFull, match="is closed"):
        append(file, chunk_bytes())


def test_directory_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(Exhausted, match="nowhere"):
        JournalFile(tmp_path / "nowhere" / "f")


def test_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "f").symlink_to(tmp_path / "other")
    with pytest.raises(Exhausted):
        JournalFile(tmp_path / "f")


def test_limit_of_one_capture(tmp_path: Path) -> None:
    one = chunk_bytes()
    file = JournalFile(tmp_path / "f", bytes_max=2 * len(one))
    append(file, one)
    append(file, one)
    with pytest.raises(JournalFull, match="limit"):
        append(file, one)
    file.close()
    assert (tmp_path / "f").stat().st_size == 2 * len(one)


def test_little_space_left(tmp_path: Path) -> None:
    """Four times what the file has stays free: its trace needs it."""
    free = [2000]
    file = JournalFile(tmp_path / "f", claim=claim_of(lambda: free[0]))
    append(file, chunk_bytes(body=bytes(304)))  # 400 bytes
    free[0] = 2080
    append(file, chunk_bytes(body=b""))  # 96, and 4 * 496
    with pytest.raises(JournalFull, match="2 KiB may be written"):
        append(file, chunk_bytes(body=b""))
    file.close()
    assert (tmp_path / "f").stat().st_size == 496


def test_what_was_promised_is_given_back(tmp_path: Path) -> None:
    space = Space(tmp_path, measure=lambda: (1 << 30, 0))
    file = JournalFile(tmp_path / "f", claim=space.claim(1, "f"))
    append(file, chunk_bytes())
    assert space.left() < 1 << 30
    file.close()
    assert space.left() == 1 << 30


def test_write_that_fails_midway_leaves_no_trace(tmp_path: Path) -> None:
    """A file size limit is a disk that ends in the middle of a chunk."""
    script = f"""
import resource, signal, sys
sys.path[:0] = {sys.path!r}
from pathlib import Path
from profd.attached.ingest.journal_file import JournalFile, JournalFull
from tests.support.ingest import claim_of, chunk_bytes
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
file = JournalFile(Path({str(tmp_path / "f")!r}))
sequence = 0
try:
    while True:
        file.append(memoryview(chunk_bytes(0, sequence, body=bytes(100))))
        sequence += 1
except JournalFull as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "File too large" in done.stdout
    assert names_of(tmp_path / "f") == [(0, number) for number in range(1000 // 196)]


@pytest.mark.parametrize(
    "tail", [b"\0", b"PFC1", b"x" * 95, chunk_bytes(0, 3)[:-1], bytes(4096), chunk_bytes(0, 3)[:40]]
)
def test_torn_tail_is_cut(tmp_path: Path, tail: bytes) -> None:
    whole = b"".join(chunk_bytes(0, number) for number in range(3))
    (tmp_path / "f").write_bytes(whole + tail)
    found, cut = recovered(tmp_path / "f")
    assert [chunk.sequence for chunk in found] == [0, 1, 2]
    assert cut == len(tail)
    assert (tmp_path / "f").read_bytes() == whole


def test_everything_after_a_broken_chunk_is_cut(tmp_path: Path) -> None:
    first, second, third = (chunk_bytes(0, number) for number in range(3))
    broken = second[:-1] + bytes([second[-1] ^ 1])
    (tmp_path / "f").write_bytes(first + broken + third)
    found, cut = recovered(tmp_path / "f")
    assert [chunk.sequence for chunk in found] == [0]
    assert cut == len(second) + len(third)


def test_recovery_reads_files_larger_than_its_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profd.attached.ingest.journal_file._WINDOW_BYTES", 1000)
    sizes = [0, 100, 700, 904, 300, 5]
    chunks = [chunk_bytes(0, number, body=bytes(size)) for number, size in enumerate(sizes)]
    (tmp_path / "f").write_bytes(b"".join(chunks))
    found, cut = recovered(tmp_path / "f")
    assert [chunk.sequence for chunk in found] == list(range(6))
    assert [chunk.end - chunk.start for chunk in found] == [len(chunk) for chunk in chunks]
    assert cut == 0


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.lists(st.integers(0, 300), max_size=8), data=st.data())
def test_property_a_file_cut_anywhere_keeps_its_whole_chunks(
    tmp_path: Path, sizes: list[int], data: st.DataObject
) -> None:
    chunks = [chunk_bytes(0, number, body=bytes(size)) for number, size in enumerate(sizes)]
    whole = b"".join(chunks)
    end = data.draw(st.integers(0, len(whole)))
    (tmp_path / "f").write_bytes(whole[:end])
    found, _ = recovered(tmp_path / "f")
    ends = [sum(map(len, chunks[: number + 1])) for number in range(len(chunks))]
    assert len(found) == sum(place <= end for place in ends)


@pytest.mark.slow
def test_kill_9_in_the_middle_of_writes(tmp_path: Path) -> None:
    script = f"""
import sys
sys.path[:0] = {sys.path!r}
from pathlib import Path
from profd.attached.ingest.journal_file import JournalFile
from tests.support.ingest import claim_of, chunk_bytes
file = JournalFile(Path({str(tmp_path / "f")!r}))
file.recover(lambda chunk: True)
sequence = 0
while True:
    file.append(memoryview(b"".join(chunk_bytes(0, sequence + n, body=bytes(20000)) for n in range(20))))
    sequence += 20
    print(sequence, flush=True)
"""
    seconds = random.Random(1)
    for _ in range(5):
        (tmp_path / "f").unlink(missing_ok=True)
        with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            acked = 0
            for _ in range(seconds.randrange(1, 40)):
                acked = int(process.stdout.readline())
            os.kill(process.pid, signal.SIGKILL)
            acked = max(
                [
                    acked,
                    *(int(line) for line in process.stdout.read().splitlines(keepends=True) if line.endswith(b"\n")),
                ]
            )
        found, _ = recovered(tmp_path / "f")
        # THEN what was acked is there, and what is there is whole and in order.
        assert len(found) >= acked
        assert [chunk.sequence for chunk in found] == list(range(len(found)))
