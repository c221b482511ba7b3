"""The job that judges ranks which stand still: foreign bytes are decoded in a worker."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import msgspec

from profd.answers.hangs.look import ProcessLook
from profd.answers.hangs.matching import judge
from profd.answers.hangs.memory import memory_from_untrusted
from profd.answers.hangs.recalled import looks_of
from profd.errors import BadInput
from profd.workers.jobs import Progress


def judged(args: dict[str, Any], fds: list[int], progress: Progress) -> dict[str, Any]:
    """`{"verdict": …}` of what `Recalled.write` has put into `fds[0]`; `args` is what it returned."""
    at = args["looks"]
    looks = []
    for look, length in zip(looks_of(fds[0], at), args["dumps"], strict=True):
        looks.append(look if length is None else _with_memory(look, os.pread(fds[0], length, at)))
        at += length or 0
    return {"verdict": msgspec.to_builtins(judge(looks, args["now_ns"], args["world"]))}


def _with_memory(look: ProcessLook, dump: bytes) -> ProcessLook:
    try:
        memory = memory_from_untrusted(dump)
    except BadInput as error:
        return replace(look, why=str(error))
    # A third look: one that has gone on meanwhile does not stand still.
    return replace(look, memory=memory, after=memory.numbers)
