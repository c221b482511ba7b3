"""Collections of Python's garbage collector: recorded by a callable in `gc.callbacks` while a recording runs.

The callable is native (native/recorder/garbage_py.cpp), and leaves out what takes less than 0.1 ms. It is in the list
of the main interpreter; a program that clears that list ends these rows, and nothing else.
"""

from __future__ import annotations

import gc

from profclient import _recorder
from profclient.agent import register_hook

TYPE_CHECKING = False
if TYPE_CHECKING:
    from profclient.agent import Options


_callbacks = gc.callbacks  # the collector's own list, whatever a program puts in the place of that name


def _armed(_options: Options) -> None:
    if _place() < 0:
        _callbacks.append(_recorder.on_collection)


def _stopping(_options: Options) -> None:
    at = _place()  # the program may have cleared the list
    if at >= 0 and _callbacks[at] is _recorder.on_collection:  # nothing else runs between here and the next line
        del _callbacks[at]


def _place() -> int:
    """Of ours in the list, -1: not there. By identity: others in it may have an `==` of their own."""
    return next((at for at, one in enumerate(_callbacks) if one is _recorder.on_collection), -1)


register_hook("garbage", _armed, _stopping)
