"""Uids that are nobody's, and never will be (systemd's table of uids), for what works on the processes of others.

A user traces, signals and limits what has their uid. And uid 0 without capabilities still owns /etc/shadow, and
connects to the daemon as an admin.
"""

from __future__ import annotations

from typing import Final

SAMPLERS: Final = range(65520, 65532)  # of root's targets; in turn, so that no sampler is another one's user
PORTERS: Final = 65532  # of everybody's
STREAMER: Final = 65533  # of everybody's
