"""Uids that are nobody's, and never will be (systemd's table of uids), for what works on root's processes.

Uid 0 without capabilities still owns /etc/shadow, and connects to the daemon as an admin.
"""

from __future__ import annotations

from typing import Final

SAMPLERS: Final = range(65520, 65533)  # in turn, so that no sampler is another one's user
STREAMER: Final = 65533
