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


def _armed(_options: Options) -> None:
    if _recorder.on_collection not in gc.callbacks:
        gc.callbacks.append(_recorder.on_collection)


def _stopping(_options: Options) -> None:
    if _recorder.on_collection in gc.callbacks:  # the program may have cleared the list
        gc.callbacks.remove(_recorder.on_collection)


register_hook("garbage", _armed, _stopping)
