"""How the operators of one recording are had: by the observer, or by torch's own profiler."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from profclient.torch import builds, observer

FIX = "build it once for this torch: profctl torch build"

_loaded: observer.Observer | None = None


def start(options: Mapping[str, str]) -> None:
    """Begin. Raises RuntimeError with a sentence where operators cannot be recorded as asked."""
    if "torch" not in sys.modules:
        if options["torch"] == "auto":
            return
        raise RuntimeError("it has not been imported")
    found = _observer()
    if found is None:
        raise RuntimeError(f"there is no observer of PyTorch's operators; {FIX}")
    found.start(observer.wanted(dict(options)))


def stop(options: Mapping[str, str]) -> None:
    """End it; called once after each start that did not raise."""
    if _loaded is not None:
        _loaded.stop()


def _observer() -> observer.Observer | None:
    global _loaded
    if _loaded is None:
        try:
            _loaded = observer.load()
        except (builds.Unusable, OSError) as error:
            raise RuntimeError(str(error)) from None
    return _loaded
