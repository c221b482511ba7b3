"""Jobs of workers: their shape, and how a worker finds one. The maker of a pool names its jobs.

A job is `def job(args, fds, progress) -> dict`: `args` and the result are JSON
values, `fds` are open descriptors (inputs, outputs) that belong to the job,
`progress(what, share)` may be called as often as it likes (share 0..1, or -1).
A ProfdError reaches the caller as the same type; any other exception becomes
JobFailed. Jobs never open the network and never start processes.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

Progress = Callable[[str, float], None]
Job = Callable[[dict[str, Any], list[int], Progress], dict[str, Any]]


def find(name: str, known: Mapping[str, str]) -> Job:
    """The job of a name, where it is said in `known` to lie. KeyError if there is none."""
    job: Job = imported(known[name])
    return job


def imported(path: str) -> Any:
    """The object at "module:name"; at "module:maker/word" the object that `maker(word)` returns.

    A worker imports the module of the job that it runs, and no other.
    """
    module, _, name = path.partition(":")
    maker, slash, word = name.partition("/")
    found = getattr(importlib.import_module(module), maker)
    return found(word) if slash else found
