"""Looks at processes that are repeated while these are recorded: one thread asks for all of them, users in turn.

On the event loop each would keep everybody waiting; in its threads lists of others would wait for them; and in a
thread of each kind, first come first served, a user with many processes would keep another's looks.
"""

from __future__ import annotations

from typing import Final

from profd.fairness.thread_by_turns import ThreadByTurns
from profd.targets import guarded

looks: Final = ThreadByTurns("profd-repeated", prepare=guarded.others_wait)
"""Waits no longer for a process that does not answer than the event loop would."""
