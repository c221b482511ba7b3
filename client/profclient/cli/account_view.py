"""The window of a trace for people: where the leading thread's time went, and which threads ran."""

from __future__ import annotations

from typing import Any, Final

from profclient.cli.output import cut, printable
from profclient.cli.units import duration, share

THREADS_SHOWN: Final = 3
SHARE_SHOWN: Final = 0.005
_RECORDED: Final = (
    ("operators", "operators_ns"),
    ("Python calls", "calls_ns"),
    ("Python seen by samples", "sampled_ns"),
    ("ranges alone", "ranges_ns"),
    ("nothing recorded", "nothing_ns"),
)
_KERNEL: Final = (("on a CPU", "cpu_ns"), ("waiting for one", "run_queue_ns"), ("off the CPU", "off_cpu_ns"))
_WAITS: Final = (("estimated: for the GIL", "gil_ns"), ("for other locks", "lock_ns"))
NAME_WIDTH: Final = 40  # of a thread, which the program chooses
WAITS_SHOWN: Final = 0.05  # of the window, off the CPU


def account_lines(account: dict[str, Any]) -> list[tuple[str, str]]:
    """(name, text) for each line; none where no window is known."""
    window, leading = account.get("window_ns"), account.get("leading")
    if not window or leading is None:
        return []
    thread = account["threads"][leading]
    lines = [("window", f"{duration(window)} of {_name(thread)}: {_shares(thread, _RECORDED, window)}")]
    if thread["cpu_ns"] is not None:
        lines.append(("", _shares(thread, _KERNEL, window, all_of_them=True) + _waits(thread, window)))
    if threads := _threads(account, window):
        lines.append(("threads", threads))
    return [*lines, *((name, text) for name, text in (("", account["message"]), ("hint", account["hint"])) if text)]


def _shares(thread: dict[str, Any], parts: tuple[tuple[str, str], ...], window: int, all_of_them: bool = False) -> str:
    shares = [(word, thread[key]) for word, key in parts if thread[key] or all_of_them]
    return ", ".join(f"{word} {share(spent, window)}" for word, spent in shares)


def _waits(thread: dict[str, Any], window: int) -> str:
    """What it waited for when it was off the CPU, where that is worth a word. Answers of earlier daemons have none."""
    if thread["off_cpu_ns"] < WAITS_SHOWN * window or "gil_ns" not in thread:
        return ""
    parts = ((word, thread[key]) for word, key in _WAITS)
    return f" ({', '.join(f'{word} ' + ('not recorded' if ns is None else share(ns, window)) for word, ns in parts)})"


def _threads(account: dict[str, Any], window: int) -> str:
    ran = [thread for thread in account["threads"] if thread["cpu_ns"]]
    if not ran or account["idle_threads"] is None:
        return ""
    most = [thread for thread in ran if thread["cpu_ns"] >= SHARE_SHOWN * window][:THREADS_SHOWN] or ran[:1]
    shown = ", ".join(f"{_name(thread)} {share(thread['cpu_ns'], window)}" for thread in most)
    more = account["ran_threads"] - len(most)
    cores = f"{account['cpu_ns'] / window:.2g} of {account['cores']} cores"
    text = f"CPU time {duration(account['cpu_ns'])} ({cores}): {shown}"
    text += f", {more:,} more" if more > 0 else ""
    text += f"; {account['idle_threads']:,} slept all the time" if account["idle_threads"] else ""
    own, own_ns = account.get("own_threads"), account.get("own_cpu_ns")  # daemons of before do not say
    return f"{text}; {left_out(own)}{f' ({duration(own_ns)})' if own_ns else ''}" if own else text


def left_out(own_threads: int) -> str:
    """What an answer about a job says of the threads that profd has started in it."""
    return f"{own_threads} thread{'s' if own_threads > 1 else ''} of profd left out"


def _name(thread: dict[str, Any]) -> str:
    return cut(printable(thread["name"] or f"thread {thread['id']}"), NAME_WIDTH)
