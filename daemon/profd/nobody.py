"""Uids that are nobody's, and never will be (systemd's table of uids).

For what works on root's processes, or on everybody's. Uid 0 without capabilities still owns /etc/shadow, and connects
to the daemon as an admin.
"""

from __future__ import annotations

from typing import Final

SAMPLERS: Final = range(65520, 65532)  # in turn, so that no sampler is another one's user
PORTERS: Final = 65532  # of all users: so that none of them can signal one
STREAMER: Final = 65533
