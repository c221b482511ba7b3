"""Capabilities of a process, as /proc tells them."""

from __future__ import annotations


def effective(status: str) -> int | None:
    """Those in effect, as bits, by the text of /proc/PID/status; None where it does not say."""
    for line in status.splitlines():
        if line.startswith("CapEff:"):
            return int(line.split()[1], 16)
    return None
