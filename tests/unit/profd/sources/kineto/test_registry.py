"""The rules that keep clients whole: one reply per poll, none too late, configs only when they will be read."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd import limits
from profd.sources.kineto.registry import (
    CONFIG_AGE_NS,
    LATE_AGE_NS,
    POLLING,
    SILENT_NS,
    STALE_AGE_NS,
    Drop,
    HandOut,
    KinetoPeer,
    Pending,
    PollReply,
    Registry,
)
from profd.sources.kineto.wire import Context, Poll
from profd.targets.process import ProcessId

SECOND = 1_000_000_000
PEER = KinetoPeer(ProcessId(10, 1), 1000, 1000, "/d/dynoconfigclient1", "directory")
IDLE, TRACING = Poll(3, 0, (1,)), Poll(1, 0, (1,))


def pending(token: str = "t", expires_ns: int | None = None) -> tuple[Pending, list[HandOut]]:
    handed: list[HandOut] = []
    return Pending(token, "A=1\n", handed.append, expires_ns), handed


def deliver(registry: Registry, answer: PollReply | Drop, *, age: int = 0, now: int = 0, ok: bool = True) -> None:
    assert isinstance(answer, PollReply)
    registry.sent(PEER, answer, ok, age, now)


def test_first_poll_registers_and_is_told_nothing() -> None:
    registry = Registry()
    assert registry.poll(PEER, IDLE, 0, 5 * SECOND) == PollReply("")
    known = registry.get(PEER.id)
    assert known is not None
    assert (known.polls, known.takes_config, known.period_ns) == (1, True, None)
    registry.poll(PEER, TRACING, SECOND // 100, 10 * SECOND)
    known = registry.get(PEER.id)
    assert known is not None
    assert (known.polls, known.takes_config, known.period_ns) == (2, False, 5 * SECOND - SECOND // 100)


def test_config_is_handed_out_once_and_only_after_it_was_sent() -> None:
    registry, (config, handed) = Registry(), pending()
    assert registry.submit(PEER.id, config)
    assert not registry.submit(PEER.id, pending("other")[0])
    answer = registry.poll(PEER, IDLE, 0, SECOND)
    assert isinstance(answer, PollReply)
    assert answer.text == "A=1\n"
    assert handed == []
    deliver(registry, answer, now=SECOND + 1)
    assert handed == [HandOut(SECOND + 1, late=False)]
    assert not registry.withdraw(PEER.id, "t")
    assert registry.poll(PEER, IDLE, 0, 2 * SECOND) == PollReply("")


def test_undelivered_config_waits_for_the_next_poll() -> None:
    registry, (config, handed) = Registry(), pending()
    registry.submit(PEER.id, config)
    deliver(registry, registry.poll(PEER, IDLE, 0, SECOND), ok=False)
    assert handed == []
    deliver(registry, registry.poll(PEER, IDLE, 0, 2 * SECOND), now=2 * SECOND)
    assert len(handed) == 1


def test_no_config_where_it_would_be_lost() -> None:
    registry, (config, _) = Registry(), pending(expires_ns=9 * SECOND)
    registry.submit(PEER.id, config)
    assert registry.poll(PEER, TRACING, 0, SECOND) == PollReply("")
    assert registry.poll(PEER, IDLE, CONFIG_AGE_NS, 2 * SECOND) == PollReply("")
    assert registry.poll(PEER, IDLE, 0, 9 * SECOND) == PollReply("")
    assert registry.withdraw(PEER.id, "t")
    assert not registry.withdraw(PEER.id, "t")


def test_no_config_for_another_program() -> None:
    registry, (config, handed) = Registry(), pending()
    registry.submit(PEER.id, replace(config, same=lambda: False))
    assert registry.poll(PEER, IDLE, 0, SECOND) == PollReply("")
    assert handed == []
    assert registry.withdraw(PEER.id, "t")


def test_stale_poll_is_not_answered_but_noted() -> None:
    registry = Registry()
    assert registry.poll(PEER, TRACING, STALE_AGE_NS, SECOND) is Drop.STALE
    known = registry.get(PEER.id)
    assert known is not None
    assert known.last_poll_ns == SECOND - STALE_AGE_NS
    assert not known.takes_config


def test_late_reply_costs_the_next_one() -> None:
    registry, (config, handed) = Registry(), pending()
    registry.submit(PEER.id, config)
    deliver(registry, registry.poll(PEER, IDLE, 0, SECOND), age=LATE_AGE_NS, now=SECOND)
    assert handed == [HandOut(SECOND, late=True)]
    assert registry.poll(PEER, IDLE, 0, 2 * SECOND) is Drop.CATCH_UP
    assert registry.poll(PEER, IDLE, 0, 3 * SECOND) == PollReply("")


def test_new_socket_of_a_process_owes_nothing() -> None:
    registry = Registry()
    deliver(registry, registry.poll(PEER, IDLE, 0, SECOND), age=LATE_AGE_NS)
    assert registry.poll(replace(PEER, address="/d/other"), IDLE, 0, 2 * SECOND) == PollReply("")


@given(st.lists(st.tuples(st.integers(0, 120), st.integers(0, 40), st.booleans()), max_size=40))
def test_replies_a_client_may_have_missed_are_all_drained(polls: list[tuple[int, int, bool]]) -> None:
    """A client that reads the oldest reply per poll, and only for 90 ms, never runs behind."""
    registry = Registry()
    queue: list[int] = []
    for number, (age_ms, delay_ms, _) in enumerate(polls):
        now = (number + 1) * SECOND
        answer = registry.poll(PEER, IDLE, age_ms * 1_000_000, now)
        arrives_ms = age_ms + delay_ms
        if queue:
            queue.pop()  # it reads a leftover and asks no further
        elif isinstance(answer, PollReply) and arrives_ms < 90:
            registry.sent(PEER, answer, True, arrives_ms * 1_000_000, now)
            continue
        if isinstance(answer, PollReply):
            registry.sent(PEER, answer, True, arrives_ms * 1_000_000, now)
            queue.append(number)
        assert len(queue) <= 1


def test_flood_of_one_process() -> None:
    registry = Registry()
    found = [registry.poll(PEER, IDLE, 0, SECOND) for _ in range(limits.KINETO_POLLS_PER_SECOND_MAX + 1)]
    assert found[-1] is Drop.FLOOD
    assert Drop.FLOOD not in found[:-1]
    assert registry.poll(PEER, IDLE, 0, 3 * SECOND) == PollReply("")


def test_table_is_bounded_per_uid() -> None:
    registry = Registry()
    for pid in range(limits.KINETO_PROCESSES_PER_UID_MAX):
        registry.poll(replace(PEER, id=ProcessId(pid, 1)), IDLE, 0, SECOND)
    one_more = replace(PEER, id=ProcessId(10**6, 1))
    assert registry.poll(one_more, IDLE, 0, SECOND) is Drop.TABLE_FULL
    assert registry.poll(replace(one_more, uid=1), IDLE, 0, SECOND) == PollReply("")
    registry.forget(ProcessId(0, 1))
    assert registry.poll(one_more, IDLE, 0, SECOND) == PollReply("")


def test_a_full_table_takes_who_has_less_and_root() -> None:
    share = replace(POLLING, each=4, host=4, reserved=1)
    registry, pids = Registry(share), iter(range(1, 100))

    def polls(uid: int) -> bool:
        return registry.poll(replace(PEER, id=ProcessId(next(pids), 1), uid=uid), IDLE, 0, SECOND) == PollReply("")

    assert [polls(4242) for _ in range(5)] == [True] * 4 + [False]
    assert [polls(uid) for uid in (4243, 4244, 0, 0)] == [True, True, True, False]


def test_same_pid_at_another_time_is_another_process() -> None:
    registry = Registry()
    registry.poll(PEER, IDLE, 0, SECOND)
    assert registry.get(ProcessId(PEER.id.pid, 2)) is None


def test_silence() -> None:
    registry = Registry()
    registry.poll(PEER, IDLE, 0, SECOND)
    known = registry.get(PEER.id)
    assert known is not None
    assert not known.silent(SECOND + SILENT_NS - 1)
    assert known.silent(SECOND + SILENT_NS)
    assert registry.quiet(SECOND) == []
    assert registry.quiet(SECOND + 10 * SECOND) == [PEER.id]


def test_forgetting_takes_the_config_along() -> None:
    registry, (config, _) = Registry(), pending()
    registry.poll(PEER, IDLE, 0, SECOND)
    registry.submit(PEER.id, config)
    registry.forget(PEER.id)
    registry.forget(PEER.id)
    assert len(registry) == 0
    assert not registry.withdraw(PEER.id, "t")


def test_contexts_are_counted_per_gpu() -> None:
    registry = Registry()
    other = replace(PEER, id=ProcessId(11, 1))
    assert registry.context(PEER, Context(0, 0)) == 1
    for peer in (PEER, other):
        registry.poll(peer, IDLE, 0, SECOND)
    assert [registry.context(peer, Context(0, 0)) for peer in (PEER, PEER, other)] == [1, 1, 2]
    assert registry.context(PEER, Context(1, 0)) == 1


def test_nothing_is_kept_of_gpus_whose_processes_have_ended() -> None:
    # 1,024 processes that each named 1,024 GPUs left 37 MB for good
    registry, other = Registry(), replace(PEER, id=ProcessId(11, 2))
    for peer in (PEER, other):
        registry.poll(peer, IDLE, 0, SECOND)
        registry.context(peer, Context(0, 0))
        registry.context(peer, Context(7, 0))
    registry.forget(PEER.id)
    assert sorted(registry._instances) == [0, 7]
    registry.forget(other.id)
    assert not registry._instances


@pytest.mark.parametrize("gpu", [-1, limits.KINETO_GPUS_MAX, 1 << 30])
def test_impossible_gpus_are_not_remembered(gpu: int) -> None:
    registry = Registry()
    registry.poll(PEER, IDLE, 0, SECOND)
    assert registry.context(PEER, Context(gpu, 0)) == 1
