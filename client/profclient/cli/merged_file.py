"""What a file of several traces says of itself (docs/json.md), for people."""

from __future__ import annotations

from typing import Any, Final

from profclient.cli.captured_view import place, say_of_traces
from profclient.cli.output import printable, say
from profclient.cli.units import duration

_TRACES_SHOWN: Final = 16
_REMARKS_SHOWN: Final = 3


def say_of_merged(about: dict[str, Any]) -> None:
    """Which traces are in it, how their clocks were compared, and what each may be wrong by."""
    say_of_traces(about)
    say(printable(about["clocks"]["message"]))
    remarks = about["remarks"]
    for remark in remarks[:_REMARKS_SHOWN]:
        say(printable(remark))
    if (more := len(remarks) - _REMARKS_SHOWN) > 0:
        say(f"… and {more} more of these: --json has them.")
    rows = about["traces"]
    if all(row["joined_by"] == "wall clock" for row in rows) and len(rows) > 1:
        say("All times are as the hosts' clocks say; nothing is proved of how far these are apart.")
        return
    others = [row for row in rows if row["joined_by"] != "reference"]
    for row in others[:_TRACES_SHOWN]:
        say(printable(f"{place(row)}{_on(row)}: {_placed(row)}"))
    if (more := len(others) - _TRACES_SHOWN) > 0:
        say(f"… and {more} more: the file names them, and so does --json.")


def _on(row: dict[str, Any]) -> str:
    return f" on {row['host']}" if row["host"] else ""


def _placed(row: dict[str, Any]) -> str:
    """How it was put on the axis, and what is proved of that."""
    if row["joined_by"] == "wall clock":
        return "as its host's clock says; nothing is proved"
    moved = f"moved by {duration(row['moved_ns'])}"
    if row["within_ns"] is None:
        return f"{moved}, as another trace of its host; nothing is proved"
    return f"{moved}, wrong by {duration(row['within_ns'])} at most (proved)"
