"""Whether the observer is built for the torch beside us, without importing that torch, which takes seconds."""

from __future__ import annotations

from importlib import metadata

from profclient.torch import build, builds


def state() -> tuple[str, bool] | None:
    """The version of torch in this Python, and whether a usable build for it is there; None without torch."""
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return None
    usable = (one for one, _, problem in build.known(builds.places()) if one is not None and not problem)
    return version, any(one.key.torch == version for one in usable)
