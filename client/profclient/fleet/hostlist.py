"""Lists of hosts as Slurm and ClusterShell write them: `node[001-064,070],login1,rack[1-2]n[0-9/3],!node013`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from profclient.errors import UsageError

HOSTS_MAX: Final = 4096
TEXT_MAX: Final = 65_536
NUMBERS_MAX: Final = 100_000  # of ranks
# A name becomes a word of a command: nothing that a shell or an option parser reads otherwise.
_HOST: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}")
_RANGE: Final = re.compile(r"(?P<first>\d{1,9})(?:-(?P<last>\d{1,9})(?:/(?P<step>\d{1,9}))?)?", re.ASCII)


def hosts(texts: str | tuple[str, ...]) -> list[str]:
    """The hosts in their order, each once; `!` takes some out again. Raises UsageError, which names what is wrong."""
    text = texts if isinstance(texts, str) else ",".join(texts)
    if len(text) > TEXT_MAX:
        raise UsageError(f"--hosts is longer than {TEXT_MAX:,} characters.")
    found: dict[str, None] = {}
    without: set[str] = set()
    for word in _words(text):
        excluded = word.startswith("!")
        for host in _expanded(word.removeprefix("!")):
            if not _HOST.fullmatch(host):
                raise UsageError(f"{host!r} is no name of a host: letters, digits, dots, '-' and '_', no '-' first.")
            without.add(host) if excluded else found.setdefault(host)
            if len(found) > HOSTS_MAX or len(without) > HOSTS_MAX:
                raise UsageError(f"--hosts names more than {HOSTS_MAX:,} hosts.")
    left = [host for host in found if host not in without]
    if not left:
        raise UsageError("--hosts names no host. An example: --hosts 'node[001-064]'")
    return left


def numbers(text: str) -> list[int]:
    """The numbers of `0,8-15`, in order, each once. Raises UsageError."""
    found: dict[int, None] = {}
    for word in text.split(","):
        for number in _numbers(word.strip(), text):
            found[int(number)] = None
            if len(found) > NUMBERS_MAX:
                raise UsageError(f"{text!r} has more than {NUMBERS_MAX:,} numbers.")
    return list(found)


def _words(text: str) -> Iterator[str]:
    """Parted by commas and white space outside of brackets."""
    inside, word = False, ""
    for char in text:
        if char in "[]":
            if inside == (char == "["):
                raise UsageError(f"--hosts {text[:80]!r}: a bracket has no other one.")
            inside = char == "["
        if not inside and (char == "," or char.isspace()):
            if word:
                yield word
            word = ""
        else:
            word += char
    if inside:
        raise UsageError(f"--hosts {text[:80]!r}: a bracket has no other one.")
    if word:
        yield word


def _expanded(word: str) -> Iterator[str]:
    """All of the first bracket's numbers, with all that follows it. Stops soon after as many as there may be."""
    head, bracket, rest = word.partition("[")
    if not bracket:
        yield word
        return
    inside, _, tail = rest.partition("]")
    for part in inside.split(","):
        for number in _numbers(part.strip(), word):
            for end in _expanded(tail):
                yield head + number + end


def _numbers(part: str, whole: str) -> Iterator[str]:
    """`001-064` or `0-9/3`; leading zeros are kept."""
    match = _RANGE.fullmatch(part)
    if match is None:
        raise UsageError(f"{part!r} in {whole[:80]!r} is no number and no range such as 001-064 or 0-62/2.")
    first, last, step = match["first"], match["last"] or match["first"], int(match["step"] or 1)
    if int(last) < int(first) or not step:
        raise UsageError(f"{part!r} in {whole[:80]!r} is empty: a range goes up, by 1 or more.")
    if first.startswith("0") and len(last) < len(first):
        raise UsageError(f"{part!r} in {whole[:80]!r}: both ends have the same number of digits, or no zeros in front.")
    width = len(first) if first.startswith("0") else 0
    for number in range(int(first), int(last) + 1, step):
        yield f"{number:0{width}}"
