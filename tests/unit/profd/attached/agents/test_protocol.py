"""Packets of agents: what is understood, and what is refused."""

from __future__ import annotations

import struct
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd.attached.agents.protocol import (
    Hostile,
    Left,
    Packet,
    PacketKind,
    changed_from_untrusted,
    encode,
    hello_from_untrusted,
    parse_untrusted_packet,
    status_from_untrusted,
    wish_from_untrusted,
)
from profd.limits import (
    AGENT_KEYS_MAX,
    AGENT_LABEL_CHARACTERS_MAX,
    AGENT_PACKET_BYTES_MAX,
    AGENT_VALUE_CHARACTERS_MAX,
    AGENT_WORDS_MAX,
    RANK_MAX,
    SAID_SENTENCES_MAX,
)

HEADER = struct.pack("<IHHQ", 0x31474150, 1, 0, 0)


def hello(**changes: str) -> Packet:
    return Packet(PacketKind.HELLO, 0, {"versions": "1-1", "incarnation": "a1", **changes})


@given(
    st.sampled_from(PacketKind),
    st.integers(0, 2**64 - 1),
    st.dictionaries(
        st.text("abcdefgh._", min_size=1, max_size=8),
        st.text(st.characters(codec="utf-8").filter(str.isprintable), max_size=20),
        max_size=20,
    ),
)
def test_what_is_encoded_is_parsed(kind: PacketKind, epoch: int, fields: dict[str, str]) -> None:
    packet = parse_untrusted_packet(encode(kind, epoch, **fields))
    assert packet == Packet(kind, epoch, fields)


@given(st.binary(max_size=200) | st.binary(max_size=200).map(lambda body: HEADER + body))
def test_any_bytes_are_a_packet_or_hostile(raw: bytes) -> None:
    try:
        packet = parse_untrusted_packet(raw)
    except Hostile:
        return
    assert all(value.isprintable() for value in packet.fields.values())
    for understand in (hello_from_untrusted, status_from_untrusted, wish_from_untrusted):
        try:
            understand(packet)
        except Hostile:
            continue


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        HEADER[:-1],
        b"X" + HEADER[1:],
        struct.pack("<IHHQ", 0x31474150, 1, 7, 0),
        HEADER + b"no end",
        HEADER + b"no equals\n",
        HEADER + b"a=1\na=2\n",
        HEADER + "é=1\n".encode(),
        HEADER + b"job=\x1b[31mred\n",
        HEADER + b"j\x07b=red\n",
        HEADER + b"job=a\rb\n",
        HEADER + b"job=a\x7fb\n",
        HEADER + b"a=\n" * (AGENT_KEYS_MAX + 1),
        HEADER + b"a=" + b"x" * AGENT_PACKET_BYTES_MAX + b"\n",
    ],
)
def test_a_packet_that_no_agent_sends_is_hostile(raw: bytes) -> None:
    with pytest.raises(Hostile):
        parse_untrusted_packet(raw)


def test_values_are_cut_and_cannot_play_with_a_terminal() -> None:
    said = "a=\u202ered\x85".encode() + b"\xff\nb=" + b"x" * 8000 + b"\n"
    packet = parse_untrusted_packet(HEADER + said)
    assert packet.fields["a"] == "�red��"
    assert len(packet.fields["b"]) == AGENT_VALUE_CHARACTERS_MAX


def test_a_packet_of_ours_is_never_too_long() -> None:
    with pytest.raises(ValueError, match="longer"):
        encode(PacketKind.REFUSED, why="x" * AGENT_PACKET_BYTES_MAX)


def test_hello_with_everything() -> None:
    said = hello_from_untrusted(
        hello(framework="torch 2.13.0", can="ranges,stacks,torch", rank="3", job="77", armed="ff", unknown="x")
    )
    assert said.versions == (1, 1)
    assert (said.incarnation, said.armed, said.rank, said.job) == (0xA1, 0xFF, 3, "77")
    assert said.can == {"ranges", "stacks", "torch"}
    assert said.left is None
    assert hello_from_untrusted(hello(left="2a", left_events="7", left_dropped="1")).left == Left(0x2A, 7, 1)
    assert hello_from_untrusted(hello(left="2a")).left == Left(0x2A, 0, 0)


@pytest.mark.parametrize("rank", [RANK_MAX + 1, 2**31, 2**62])
def test_a_rank_that_none_can_have_is_left_out(rank: int) -> None:
    """Lists of processes, captures and traces have 32 bits for it: one process would break those of everybody."""
    assert hello_from_untrusted(hello(rank=str(RANK_MAX))).rank == RANK_MAX
    assert hello_from_untrusted(hello(rank=str(rank))).rank is None
    changed = changed_from_untrusted(hello_from_untrusted(hello()), Packet(PacketKind.CHANGED, 0, {"rank": str(rank)}))
    assert changed.rank is None


def test_labels_of_hello_are_short() -> None:
    long = dict.fromkeys(("agent", "python", "framework", "job", "pod"), "x" * AGENT_VALUE_CHARACTERS_MAX)
    said = hello_from_untrusted(hello(**long))
    cut = "x" * AGENT_LABEL_CHARACTERS_MAX
    assert (said.agent, said.python, said.framework, said.job, said.pod) == (cut,) * 5
    with pytest.raises(Hostile, match="words"):
        hello_from_untrusted(hello(can=",".join("abcdefgh" + str(i) for i in range(AGENT_WORDS_MAX + 1))))


def test_what_an_agent_says_is_not_interned() -> None:
    # CPython 3.12 keeps interned texts for ever: a user who always says something else took 16 GB in an hour
    said = hello_from_untrusted(hello(job="its job", can="its word"))
    for text in (said.job, *said.can):
        equal = f"{text} "[:-1]  # another object
        assert sys.intern(equal) is equal


def test_few_of_many_sentences_are_taken() -> None:
    many = ";".join(map(str, range(500)))
    said = status_from_untrusted(Packet(PacketKind.STATUS, 1, {"not_honoured": many})).not_honoured
    assert len(said) == SAID_SENTENCES_MAX + 1
    assert said[:2] == ("0", "1")
    assert said[-1] == f"and {500 - SAID_SENTENCES_MAX} sentences more"


def test_equal_words_of_many_agents_are_one_object() -> None:
    first, second = (hello_from_untrusted(hello(can="ranges,stacks", job="j-17")) for _ in range(2))
    assert first.can is second.can
    assert first.job is second.job


def test_hello_with_nothing_but_what_it_must_have() -> None:
    said = hello_from_untrusted(hello(rank="", job=""))
    assert (said.rank, said.job, said.armed, said.can) == (None, "", 0, frozenset())


@pytest.mark.parametrize(
    "changes",
    [
        {"versions": "1"},
        {"versions": ""},
        {"incarnation": ""},
        {"incarnation": "0"},
        {"incarnation": "xyz"},
        {"incarnation": "1" * 17},
        {"rank": "-1"},
        {"rank": "\u0661"},
        {"rank": "9" * 19},
        {"armed": "0x1"},
        {"left": "0x1"},
        {"left": "1", "left_events": "-1"},
    ],
)
def test_hello_that_lies_about_numbers_is_hostile(changes: dict[str, str]) -> None:
    with pytest.raises(Hostile):
        hello_from_untrusted(hello(**changes))


def test_changed_keeps_what_it_does_not_name_and_who_it_is() -> None:
    before = hello_from_untrusted(hello(can="ranges", rank="2", job="j", agent="0.1.0"))
    after = changed_from_untrusted(
        before, Packet(PacketKind.CHANGED, 0, {"framework": "torch 2.13.0", "can": "ranges,torch", "incarnation": "bb"})
    )
    assert (after.framework, after.can) == ("torch 2.13.0", {"ranges", "torch"})
    assert (after.incarnation, after.rank, after.job, after.agent) == (0xA1, 2, "j", "0.1.0")


def test_status_counts_by_source() -> None:
    status = status_from_untrusted(
        Packet(
            PacketKind.STATUS,
            1,
            {
                "events": "10",
                "seconds": "0.25",
                "seconds.ranges": "0.2",
                "seconds.stacks": "0.05",
                "seconds.x": "1",
                "step_ns": "0",
            },
        )
    )
    assert (status.events, status.seconds) == (10, 0.25)
    assert status.by_source == {"ranges": 0.2, "stacks": 0.05}
    assert status.step_ns is None


def test_names_of_threads_are_cut_and_what_is_no_pair_is_left_out() -> None:
    said = "7 MainThread;9 loader 1;x y;12;;123456789012345678901 z; 8;10 " + "n" * 5000
    status = status_from_untrusted(Packet(PacketKind.STATUS, 1, {"thread_names": said}))
    assert status.thread_names == {"7": "MainThread", "9": "loader 1", "10": "n" * 64}


@pytest.mark.parametrize("fields", [{"events": "1e3"}, {"seconds": "inf"}, {"seconds.ops": "-1"}, {"steps": "0x1"}])
def test_status_that_is_no_number_is_hostile(fields: dict[str, str]) -> None:
    with pytest.raises(Hostile):
        status_from_untrusted(Packet(PacketKind.STATUS, 1, fields))


@pytest.mark.parametrize("name", ["iterations", "duration", "begin_step", "local", "hosts", "incarnation"])
@pytest.mark.parametrize("text", ["-1", "1.5", "\u0661", "9223372036854775808" * 2, "x", " 1", "0x1"], ids=ascii)
def test_a_request_with_a_number_that_is_none_is_hostile(name: str, text: str) -> None:
    with pytest.raises(Hostile, match=name):
        wish_from_untrusted(Packet(PacketKind.REQUEST, 1, {name: text}))


def test_a_request_that_says_nothing_asks_for_nothing() -> None:
    wish = wish_from_untrusted(Packet(PacketKind.REQUEST, 7, {}))
    assert (wish.number, wish.iterations, wish.duration_ns, wish.begin_step) == (7, 0, 0, None)
    assert (wish.key, wish.local, wish.hosts) == ("", 0, 1)


def test_texts_of_a_request_are_cut_and_printable() -> None:
    raw = encode(PacketKind.REQUEST, 1, reason="\u202e" + "r" * 4000, key="\u2028" + "k" * 4000)
    wish = wish_from_untrusted(parse_untrusted_packet(raw))
    assert (len(wish.reason), len(wish.key)) == (AGENT_LABEL_CHARACTERS_MAX, AGENT_LABEL_CHARACTERS_MAX)
    assert (wish.reason + wish.key).isprintable()
