"""What is stored, whatever comes: the sink against a twin that keeps every chunk in a dictionary."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from profd.attached.ingest.chunk import Refusal
from profd.attached.ingest.journal_file import JournalFile
from profd.attached.ingest.ledger import Ledger
from profd.attached.ingest.remembered import EntryAllowance
from profd.attached.ingest.sink import Sink
from profd.limits import INGEST_BROKEN_MAX, INGEST_REJECTED_MAX

from tests.support.ingest import EPOCH, INCARNATION, chunk_bytes, claim_of, names_of

names = st.tuples(st.integers(0, 3), st.integers(0, 9))
sound = st.tuples(st.just("sound"), names, st.integers(0, 50))
wrong = st.tuples(st.sampled_from(("crc", "foreign", "version")), names, st.integers(0, 50))


def build(kind: str, name: tuple[int, int], events: int) -> bytes:
    if kind == "foreign":
        return chunk_bytes(*name, events, epoch=EPOCH + 1)
    data = chunk_bytes(*name, events, version=2 if kind == "version" else 1)
    return data if kind != "crc" else data[:-1] + bytes([data[-1] ^ 1])


class SinkMachine(RuleBasedStateMachine):
    """A sink that is killed, restarted on its file, cut off in the middle, and run into a full disk."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "f"
        self.free = 1 << 40
        self.again = 0
        self.refused: dict[str, int] = {}
        self.full = False

    @initialize()
    def first(self) -> None:
        self.twin: dict[tuple[int, int], int] = {}  # events by name, in the order they were stored
        self.start()

    def start(self) -> None:
        self.file = JournalFile(self.path, claim=claim_of(lambda: self.free))
        self.sink = Sink(self.file, Ledger(INCARNATION, EPOCH), lambda _file: None)
        self.again, self.refused, self.full = 0, {}, False

    @rule(chunks=st.lists(st.one_of(sound, sound, wrong), max_size=6))
    def message(self, chunks: list[tuple[str, tuple[int, int], int]]) -> None:
        expected = []
        for index, (kind, name, events) in enumerate(chunks):
            if kind == "crc":
                expected.append((index, Refusal.CRC))
                self.count(Refusal.CRC, 1)
            elif kind in ("foreign", "version"):
                expected.append((index, Refusal(kind)))
                self.count(Refusal(kind), events)
            elif name in self.twin or (self.full and name in self.met):
                self.again += 1
            elif self.full:
                expected.append((index, Refusal.JOURNAL_FULL))
                self.count(Refusal.JOURNAL_FULL, events)
                self.met.add(name)
            else:
                self.twin[name] = events
        assert self.sink.take(memoryview(b"".join(build(*chunk) for chunk in chunks))) == expected

    @precondition(lambda self: not self.full)
    @rule(name=names)
    def disk_becomes_full(self, name: tuple[int, int]) -> None:
        if name in self.twin:
            return
        self.free = 0
        self.file._look_again_at = 0  # as after some megabytes
        assert self.sink.take(memoryview(build("sound", name, 5))) == [(0, Refusal.JOURNAL_FULL)]
        self.count(Refusal.JOURNAL_FULL, 5)
        self.full, self.met = True, {name}
        assert "may be written" in self.sink.full

    @rule(torn=st.binary(max_size=200), cut=st.integers(0, 95))
    def killed_and_started_again(self, torn: bytes, cut: int) -> None:
        self.file.close()
        self.free = 1 << 40
        with self.path.open("ab") as file:
            file.write(chunk_bytes(0, 9, body=torn)[:cut])
        self.start()
        self.sink.recover()

    def count(self, refusal: Refusal, events: int) -> None:
        self.refused[refusal] = self.refused.get(refusal, 0) + events

    @invariant()
    def each_once_and_counted(self) -> None:
        self.sink.recover()
        assert names_of(self.path) == list(self.twin)
        assert self.sink.counts.events == sum(self.twin.values())
        assert self.sink.counts.chunks == len(self.twin)
        assert self.sink.counts.again == self.again
        assert self.sink.counts.refused == self.refused

    def teardown(self) -> None:
        self.file.close()
        self.folder.cleanup()


def test_broken_chunks_beyond_a_share_end_the_stream_and_few_are_named(tmp_path: Path) -> None:
    file = JournalFile(tmp_path / "f")
    sink = Sink(file, Ledger(INCARNATION, EPOCH), lambda _file: None)
    broken = build("crc", (0, 0), 0)
    rejected = sink.take(memoryview(build("sound", (0, 0), 5) + broken * (INGEST_BROKEN_MAX - 1)))
    assert [index for index, _ in rejected] == list(range(1, INGEST_REJECTED_MAX + 1))
    assert sink.counts.refused == {Refusal.CRC: INGEST_BROKEN_MAX - 1}
    assert sink.full == ""
    sink.take(memoryview(build("sound", (0, 1), 5) + broken * 10 + build("sound", (0, 2), 5)))
    assert "broken" in sink.full
    assert sink.take(memoryview(build("sound", (0, 3), 5) + broken)) == []
    assert names_of(tmp_path / "f") == [(0, 0), (0, 1)]
    assert sink.counts.refused == {Refusal.CRC: INGEST_BROKEN_MAX + 1}
    file.close()


def test_broken_chunks_among_more_sound_ones_end_nothing(tmp_path: Path) -> None:
    file = JournalFile(tmp_path / "f")
    sink = Sink(file, Ledger(INCARNATION, EPOCH), lambda _file: None)
    broken = build("crc", (0, 0), 0)
    for number in range(INGEST_BROKEN_MAX + 10):
        sink.take(memoryview(build("sound", (0, number), 1) + broken))
    assert sink.full == ""
    file.close()


def test_what_its_user_may_not_have_any_more_is_not_cut_from_an_earlier_file(tmp_path: Path) -> None:
    file = JournalFile(tmp_path / "f")
    Sink(file, Ledger(INCARNATION, EPOCH), lambda _file: None).take(memoryview(chunk_bytes(0) + chunk_bytes(1)))
    file.close()
    file = JournalFile(tmp_path / "f")
    sink = Sink(file, Ledger(INCARNATION, EPOCH, allowance=EntryAllowance(1)), lambda _file: None)
    assert sink.take(memoryview(chunk_bytes(2))) == [(0, Refusal.THREADS_OF_USER)]
    assert names_of(tmp_path / "f") == [(0, 0), (1, 0)]
    assert (sink.counts.chunks, sink.counts.refused) == (2, {Refusal.THREADS_OF_USER: 10})
    file.close()


TestSinkProperty = SinkMachine.TestCase
TestSinkProperty.settings = settings(stateful_step_count=20, suppress_health_check=[HealthCheck.too_slow])
