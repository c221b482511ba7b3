"""What a descriptor of a process tells."""

from __future__ import annotations

import select


def has_ended(pidfd: int) -> bool:
    """The process of this descriptor has ended, or is a zombie."""
    end = select.poll()
    end.register(pidfd, select.POLLIN)
    return bool(end.poll(0))
