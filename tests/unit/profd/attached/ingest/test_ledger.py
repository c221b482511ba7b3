"""Each chunk once: the ledger against a twin that remembers everything."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from profd.attached.ingest.chunk import Chunk, Refusal
from profd.attached.ingest.ledger import ChunkFacts, Ledger
from profd.attached.ingest.remembered import EntryAllowance, Remembered


def chunk(stream: int = 0, sequence: int = 0, *, incarnation: int = 1, epoch: int = 2, refusal=None) -> Chunk:
    return Chunk(0, 1, incarnation, epoch, stream, sequence, 1, refusal)


def accept(ledger: Ledger, item: Chunk) -> bool:
    """Store it if it is new, as a sink does."""
    if ledger.judge(item) is ChunkFacts.NEW:
        ledger.stored(item)
        return True
    return False


def test_foreign_and_broken_chunks_are_refused() -> None:
    ledger = Ledger(1, 2)
    assert ledger.judge(chunk(incarnation=9)) is Refusal.FOREIGN
    assert ledger.judge(chunk(epoch=9)) is Refusal.FOREIGN
    assert ledger.judge(chunk(refusal=Refusal.CRC)) is Refusal.CRC


def test_judging_changes_nothing() -> None:
    ledger = Ledger(1, 2)
    assert ledger.judge(chunk()) is ledger.judge(chunk()) is ChunkFacts.NEW


def test_gap_is_filled_once() -> None:
    ledger = Ledger(1, 2)
    assert [accept(ledger, chunk(0, n)) for n in (0, 3, 1, 2, 1, 3, 0)] == [True, True, True, True, False, False, False]


def test_threads_are_bounded() -> None:
    ledger = Ledger(1, 2, threads_max=2)
    assert accept(ledger, chunk(0))
    assert accept(ledger, chunk(7))
    assert ledger.judge(chunk(8)) is Refusal.TOO_MANY_THREADS
    assert accept(ledger, chunk(7, 1))


def test_a_jump_to_the_end_of_time_costs_nothing() -> None:
    ledger = Ledger(1, 2, gaps_max=10)
    assert accept(ledger, chunk(0, 2**64 - 1))
    # Ten gaps are remembered, and no more.
    assert ledger.judge(chunk(0, 2**64 - 11)) is ChunkFacts.NEW
    assert ledger.judge(chunk(0, 2**64 - 12)) is ChunkFacts.BEFORE  # forgotten: dropped rather than stored twice


items = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12)), max_size=80)


@given(items)
def test_property_equals_a_set(sent: list[tuple[int, int]]) -> None:
    ledger, twin = Ledger(1, 2), set()
    for stream, sequence in sent:
        assert accept(ledger, chunk(stream, sequence)) == ((stream, sequence) not in twin)
        twin.add((stream, sequence))


@given(items, st.integers(0, 4))
def test_property_never_twice_whatever_is_forgotten(sent: list[tuple[int, int]], gaps_max: int) -> None:
    ledger = Ledger(1, 2, gaps_max=gaps_max)
    stored = [pair for pair in sent if accept(ledger, chunk(*pair))]
    assert len(stored) == len(set(stored))
    unstored = [chunk(stream, number) for stream in range(4) for number in range(13) if (stream, number) not in stored]
    below = [item for item in unstored if any(s == item.stream and n > item.sequence for s, n in stored)]
    assert sum(ledger.judge(item) is ChunkFacts.NEW for item in below) <= gaps_max


def test_who_always_jumps_leaves_few_gaps_and_they_come_back() -> None:
    # 30,000 chunks that jump by 5,000 each cost 4,096 gaps each before: others' lists took ten times as long
    ledger = Ledger(1, 2, gaps_max=100)
    ledger.stored(chunk(0, 1000))
    assert len(ledger._gaps) == 100
    ledger.stored(chunk(0, 2000))
    assert [ledger.judge(chunk(0, late)) for late in (1983, 1984, 1999)] == [
        ChunkFacts.BEFORE,
        ChunkFacts.NEW,
        ChunkFacts.NEW,
    ]
    for sequence in range(2001, 2008):
        ledger.stored(chunk(0, sequence))
    ledger.stored(chunk(0, 3000))
    assert [ledger.judge(chunk(0, late)) for late in (2899, 2900, 2999)] == [
        ChunkFacts.BEFORE,
        ChunkFacts.NEW,
        ChunkFacts.NEW,
    ]


def test_threads_and_gaps_of_one_user_are_bounded_together() -> None:
    # 512 processes of 65,536 threads each came to 4 GB
    allowance = EntryAllowance(4)
    first, second = Ledger(1, 2, allowance=allowance), Ledger(3, 2, allowance=allowance)
    of_second = Chunk(0, 1, 3, 2, 0, 9, 1)
    assert accept(first, chunk(0))
    assert accept(first, chunk(1))
    assert accept(second, of_second)  # a thread, and the one gap that there is room for
    assert first.judge(chunk(2)) is Refusal.THREADS_OF_USER
    assert accept(first, chunk(1, 1))  # who is known goes on
    assert not accept(second, Chunk(0, 1, 3, 2, 0, 7, 1))
    assert accept(second, Chunk(0, 1, 3, 2, 0, 8, 1))  # the gap is filled, and its room is free
    assert accept(first, chunk(2))


def test_closed_ledger_gives_its_room_back_and_takes_nothing() -> None:
    allowance = EntryAllowance(1)
    first, second = Ledger(1, 2, allowance=allowance), Ledger(1, 2, allowance=allowance)
    assert accept(first, chunk(0))
    first.close()
    assert first.judge(chunk(0, 1)) is Refusal.JOURNAL_FULL
    assert accept(second, chunk(5))
    assert second.judge(chunk(6)) is Refusal.THREADS_OF_USER


def test_users_have_an_allowance_each_and_root_has_no_limit() -> None:
    remembered = Remembered(each=1)
    alice = remembered.of(4321)
    assert remembered.of(4321) is alice
    assert accept(Ledger(1, 2, allowance=alice), chunk(0))
    assert Ledger(1, 2, allowance=alice).judge(chunk(0)) is Refusal.THREADS_OF_USER
    assert Ledger(1, 2, allowance=remembered.of(4322)).judge(chunk(0)) is ChunkFacts.NEW
    root = remembered.of(0)
    root.use(1 << 40)
    assert root.left(7) == 7
