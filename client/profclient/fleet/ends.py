"""The longest that a host is waited for until it says that its capture is over. Pure.

Hosts are not believed about it: what they claim counts up to what a daemon admits (`profd.capture.admission`).
"""

from __future__ import annotations

from typing import Final

from profproto.v1 import capture_pb2 as pb

SECOND: Final = 1_000_000_000
AHEAD_MAX_NS: Final = 3600 * SECOND  # of a start, that a daemon takes; as long may a program take to hand a window over
WINDOW_MAX_NS: Final = 600 * SECOND  # of a window, and of so many iterations
ENDS_NS: Final = 1800 * SECOND
"""Beyond the window: a daemon takes 20 minutes to store, some to stop, and may be started anew."""


def longest_ns(options: pb.Options, now_ns: int) -> int:
    """From `now_ns`, by the clock of the host, to the latest end of a capture with these options."""
    ahead = _within(options.start_at_ns - now_ns, AHEAD_MAX_NS) if options.HasField("start_at_ns") else 0
    window = _within(options.duration_ns, WINDOW_MAX_NS) or WINDOW_MAX_NS
    return ahead + window + _within(options.collect_timeout_ns, AHEAD_MAX_NS) + ENDS_NS


def _within(claimed: int, most: int) -> int:
    return max(0, min(claimed, most))
