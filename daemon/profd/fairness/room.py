"""Bytes that one question may hold in the daemon."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Room:
    """How many are left."""

    left: int

    def take(self, size: int) -> bool:
        """Whether so many fit; they are taken then."""
        if size > self.left:
            return False
        self.left -= size
        return True
