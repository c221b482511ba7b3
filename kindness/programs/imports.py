"""Imports on several threads, reloads, modules that are taken out of sys.modules again."""

import importlib
import sys
import threading

from turns import expect, turns

NAMES = ("colorsys", "sched", "chunk" if sys.version_info < (3, 13) else "graphlib", "this_is_not_there")


def fetch(name, found):
    """Import it, or say that it is not there."""
    try:
        found[name] = importlib.import_module(name).__name__
    except ModuleNotFoundError:
        found[name] = "no"


import warnings  # noqa: E402 - beside the loop that needs it

warnings.simplefilter("ignore", DeprecationWarning)  # of a module that 3.13 removed
for _ in turns():
    found = {}
    threads = [threading.Thread(target=fetch, args=(name, found)) for name in NAMES * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect("imported", found, {name: "no" if name.startswith("this") else name for name in NAMES})
    importlib.reload(sys.modules["colorsys"])
    for name in NAMES:
        sys.modules.pop(name, None)
