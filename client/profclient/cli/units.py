"""Durations, sizes and times: read from people, written for people."""

from __future__ import annotations

import re
import time

from profclient.errors import UsageError

_NS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_NS |= {"m": 60 * _NS["s"], "min": 60 * _NS["s"], "h": 3600 * _NS["s"]}
_STEPS = re.compile(r"(\d{1,18})(?:(?:\.\.|-)(\d{1,18}))?", re.ASCII)
_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,3})?)\s*([KMGT]?)(i?)B?", re.IGNORECASE)
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ns|us|µs|ms|s|min|m|h)")


def parse_duration_ns(text: str) -> int:
    """`10s`, `500ms`, `1m30s` → ns. A bare number is refused: its unit would be a guess."""
    parts = _PART.findall(text)
    if not parts or _PART.sub("", text).strip():
        raise UsageError(f"{text!r} is not a duration; write it like 500ms, 10s or 1m30s.")
    total = sum(_decimal_ns(number, unit) for number, unit in parts)
    if total <= 0:
        raise UsageError(f"a duration must be longer than nothing, not {text!r}.")
    return total


def _decimal_ns(number: str, unit: str) -> int:
    whole, _, fraction = number.partition(".")
    scale = _NS[unit]
    return int(whole) * scale + (int(fraction) * scale // 10 ** len(fraction) if fraction else 0)


def parse_window_ns(text: str) -> tuple[int | None, int | None]:
    """`1s..1.5s` (or `1s-1.5s`), `2s..`, `..300ms` → ns from the trace's first event."""
    begin, dots, end = text.partition(".." if ".." in text else "-")
    if not dots or not (begin.strip() or end.strip()):
        raise UsageError(f"{text!r} is not a window; write it like 1s..1.5s, 2s.. or ..300ms.")
    from_ns = _offset_ns(begin)
    to_ns = _offset_ns(end)
    if from_ns is not None and to_ns is not None and to_ns <= from_ns:
        raise UsageError(f"the window {text!r} ends before it begins.")
    return from_ns, to_ns


def parse_size(text: str) -> int:
    """`500MB`, `2GiB` or plain bytes → bytes."""
    found = _SIZE.fullmatch(text.strip())
    if not found:
        raise UsageError(f"{text!r} is not a size; write it like 500MB or 2GiB.")
    number, prefix, binary = found.groups()
    return int(float(number) * (1024 if binary else 1000) ** (" KMGT".index(prefix.upper()) if prefix else 0))


def parse_hertz(text: str) -> float:
    """`100hz` or `100` → 100. Raises UsageError outside of 1 to 1000."""
    try:
        hertz = float(text.strip().lower().removesuffix("hz"))
    except ValueError:
        hertz = 0.0
    if not 1 <= hertz <= 1000:
        raise UsageError(f"{text!r} is no rate from 1 to 1000 a second; write it like 100hz.")
    return hertz


def parse_share(text: str) -> float:
    """`2%` or `0.02` → 0.02. Raises UsageError outside of 0.1 % to 100 %."""
    number, percent, rest = text.strip().partition("%")
    try:
        share = float(number) / (100 if percent else 1)
    except ValueError:
        share = 0.0
    if rest or not 0.001 <= share <= 1:
        raise UsageError(f"{text!r} is no share from 0.1% to 100%; write it like 2% or 0.02.")
    return share


def parse_steps(text: str) -> tuple[int, int]:
    """`12`, `12..14` or `12-14` → the first and the last step."""
    found = _STEPS.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"{text!r} is no range of steps; write it like 12 or 12..14.")
    first = int(found[1])
    last = int(found[2]) if found[2] else first
    if last < first:
        raise UsageError(f"the steps {text!r} end before they begin.")
    return first, last


def _offset_ns(text: str) -> int | None:
    text = text.strip()
    if not text:
        return None
    return 0 if text in {"0", "0s"} else parse_duration_ns(text)


def seconds(ns: int) -> str:
    """Ns → what `parse_duration_ns` takes for it, rounded up to milliseconds."""
    whole, rest = divmod(-(-ns // 1_000_000), 1000)
    return f"{whole}.{rest:03d}".rstrip("0").rstrip(".") + "s"


def duration(ns: int | float | None) -> str:
    """Ns → at most four digits and a unit: `1.234 s`, `12.3 ms`; `-` for nothing known."""
    if ns is None:
        return "-"
    value = float(ns)
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if abs(value) >= scale:
            return f"{_digits(value / scale)} {unit}"
    return f"{int(value)} ns"


def _digits(value: float) -> str:
    size = abs(value)
    return f"{value:.0f}" if size >= 1000 else f"{value:.1f}" if size >= 100 else f"{value:.2f}"


def size(count: int | None) -> str:
    """Bytes → `1.2 MB` (decimal units)."""
    if count is None:
        return "-"
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if abs(value) < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def signed_size(count: int) -> str:
    """Bytes that were added or taken: `+1.2 MB`, `-3 B`."""
    return size(count) if count < 0 else f"+{size(count)}"


def flops(count: int | None) -> str:
    """Floating point operations → `1.23 GFLOP`."""
    if count is None:
        return "-"
    for unit, scale in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= scale:
            return f"{_digits(count / scale)} {unit}FLOP"
    return f"{count} FLOP"


def ago(unix_ns: int | None, now_ns: int | None = None) -> str:
    """When something was, as people say it: `12 s ago`."""
    if not unix_ns:
        return "-"
    seconds = max(0, ((now_ns or time.time_ns()) - unix_ns) // 1_000_000_000)
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit} ago"
    return f"{seconds} s ago"


def share(part: int, whole: int) -> str:
    """`12 %`, `0.4 %`."""
    found = 100 * part / whole if whole else 0.0
    return f"{found:.0f} %" if found >= 1 or not part else f"{found:.1f} %"


def shorter(gain: int, whole: int) -> str:
    """What a gain takes from the whole: `-12 %`; `+0.4 %` where it is a loss, `0 %` where it rounds to nothing."""
    found = share(abs(gain), whole)
    if found in {"0 %", "0.0 %"}:
        return "0 %"
    return f"-{found}" if gain > 0 else f"+{found}"
