"""What waits, of users in turn: of one user what came first."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Turns(Generic[Item]):
    """A user who was served waits behind everybody else. For one thread at a time."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[int, deque[Item]] = OrderedDict()  # by uid: whose turn is next, first

    def __len__(self) -> int:
        """Items that wait."""
        return sum(map(len, self._waiting.values()))

    def add(self, uid: int, item: Item) -> None:
        """Behind the other items of this user."""
        self._waiting.setdefault(uid, deque()).append(item)

    def take(self) -> Item | None:
        """The first item of the user whose turn it is; None where nothing waits."""
        if not self._waiting:
            return None
        uid, items = next(iter(self._waiting.items()))
        item = items.popleft()
        if items:
            self._waiting.move_to_end(uid)
        else:
            del self._waiting[uid]
        return item
