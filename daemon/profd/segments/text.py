"""Text as UTF-8, whatever strings foreign traces bring; and back.

Lone surrogates are no UTF-8. Each is stored as U+001A SUBSTITUTE and its four hexadecimal digits, and so is a
SUBSTITUTE itself (001a): a SUBSTITUTE in stored text always begins an escape, and both directions are unique.
"""

from __future__ import annotations

import contextlib
import re
from typing import Final, cast

import pyarrow as pa

MARK: Final = "\x1a"
_STRANGE: Final = re.compile("[\x1a\ud800-\udfff]")
_ESCAPE: Final = re.compile("\x1a([0-9a-f]{4})")


def escaped(word: str) -> str:
    """A string that is UTF-8."""
    return _STRANGE.sub(lambda found: f"{MARK}{ord(found[0]):04x}", word)


def unescaped(word: str) -> str:
    """The inverse of `escaped`."""
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), word)


def text_array(words: list[str]) -> pa.Array:
    """Strings as Arrow, escaped where they need it."""
    with contextlib.suppress(UnicodeEncodeError):
        array = pa.array(words, pa.string())
        if not _has_mark(array):
            return array
    return pa.array([escaped(word) for word in words], pa.string())


def words_of(array: pa.Array, *, plain: bool) -> list[str]:
    """The inverse of `text_array`; `plain`: of a trace of before, which escaped nothing and wrote bytes instead.

    UnicodeDecodeError when the bytes are no text at all, ValueError for a column that is none.
    """
    if plain:
        return _plain_words(array)
    if not pa.types.is_string(array.type):
        raise ValueError(f"a column of text is of type {array.type}")
    words = cast("list[str]", array.to_pylist())
    return [unescaped(word) for word in words] if _has_mark(array) else words


def _has_mark(array: pa.Array) -> bool:
    data = array.buffers()[2]
    return data is not None and b"\x1a" in memoryview(data).tobytes()


def _plain_words(array: pa.Array) -> list[str]:
    if not pa.types.is_binary(array.type):
        with contextlib.suppress(UnicodeDecodeError):
            return cast("list[str]", array.to_pylist())
        array = array.view(pa.binary())
    return [word.decode("utf-8", "surrogatepass") for word in array.to_pylist()]
