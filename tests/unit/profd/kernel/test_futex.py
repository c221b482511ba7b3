"""What a thread waits for, by the kernel's words."""

from __future__ import annotations

import os

import pytest
from profd.kernel import futex

NUMBER = {"x86_64": 202, "aarch64": 98}[os.uname().machine]
MAPS = b"""\
00400000-00801000 r-xp 00000000 00:1b 77 /usr/bin/python3.11
00a5a000-00b92000 rw-p 0065a000 00:1b 77 /usr/bin/python3.11
7f2e36d00000-7f2e36e00000 rw-p 00000000 00:00 0
7f2e37000000-7f2e37001000 rw-p 00380000 00:1b 78 /opt/lib/libpython3.12.so.1.0
7f2e38000000-7f2e38001000 rw-p 00380000 00:1b 79 /opt/lib/python3.11/lib-dynload/_ssl.so
"""


@pytest.mark.parametrize(("what", "waits"), [(0x189, True), (0x80, True), (0x81, False)], ids=["bits", "wait", "wake"])
def test_the_word_that_a_thread_sleeps_on(what: int, waits: bool) -> None:
    text = f"{NUMBER} 0xa5b010 {what:#x} 0x0 0x7ffd1 0x0 0xffffffff 0x7ffd0 0x7f2e36d8\n".encode()
    assert futex.word_of(text) == (0xA5B010 if waits else None)


@pytest.mark.parametrize("text", [b"running\n", b"-1 0x7ffd0 0x7f2e\n", b"0 0x0 0x1 0x2 0x3 0x4 0x5 0x6 0x7\n", b""])
def test_threads_that_sleep_on_no_word(text: bytes) -> None:
    assert futex.word_of(text) is None


def test_the_interpreters_own_data() -> None:
    assert futex.interpreter_data(MAPS) == [range(0xA5A000, 0xB92000), range(0x7F2E37000000, 0x7F2E37001000)]


def test_a_mapping_whose_name_is_all_digits_takes_no_more_than_others() -> None:
    """By the square of its length this would take minutes, and nothing else of the daemon runs meanwhile."""
    name = b"/libpython3." + b"1" * 300_000
    assert futex.interpreter_data(b"7f0000000000-7f0000001000 rw-p 00000000 00:1b 78 " + name + b"\n" + MAPS) == [
        range(0xA5A000, 0xB92000),
        range(0x7F2E37000000, 0x7F2E37001000),
    ]
