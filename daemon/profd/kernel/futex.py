"""What a thread waits for, by the text of /proc/PID/task/TID/syscall, and whether that is the GIL.

CPython's GIL is in the interpreter's own data (_PyRuntime), where nothing else is that a thread sleeps on: CPython
allocates all its other locks. docs/decisions/0023-lock-holders.md.
"""

from __future__ import annotations

import os
import re

_FUTEX = {"x86_64": 202, "aarch64": 98}.get(os.uname().machine)
_WAIT, _WAIT_BITSET, _COMMAND = 0, 9, 0x7F
# One repetition behind the name: with two beside each other (`\d+[^/\n]*`) a line of digits takes its square.
_DATA = re.compile(
    rb"^([0-9a-f]+)-([0-9a-f]+) rw-p [^\n]*/(?:libpython3\.\d[^/\n]*\.so[.\d]*|python3?(?:\.\d+)?)$", re.MULTILINE
)


def word_of(text: bytes) -> int | None:
    """The address of the word that the thread sleeps on; None: it does not."""
    words = text.split()
    if len(words) != 9 or int(words[0]) != _FUTEX:
        return None
    word, what = (int(part, 16) for part in words[1:3])
    return word if what & _COMMAND in (_WAIT, _WAIT_BITSET) else None


def interpreter_data(maps: bytes) -> list[range]:
    """Where the interpreter's own data lies, of /proc/PID/maps. Empty: it has none, or one of another name."""
    return [range(int(of[1], 16), int(of[2], 16)) for of in _DATA.finditer(maps)]
