"""What the traces of a source are like: stored in each, so that no reader asks which source it was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Traits:
    """What may be expected of a trace. The defaults say nothing against anything."""

    samples: bool = False  # its rows are samples of stacks, and nothing that happened was recorded as such
    steps: bool = True  # steps of a training loop can be found in it
    device_rows: bool = True  # work of devices is in it, where there was some
    begins_within_step: bool = False  # with `iterations`: from within a step to an end of one, and not between two
    samples_beside: bool = True  # samples can be recorded beside what is in it
    allocations: bool = False  # its source records those of PyTorch's operators, where asked (--memory)


SAMPLED: Final = Traits(samples=True, steps=False, device_rows=False)
ATTACHED: Final = Traits(begins_within_step=True, allocations=True)

_OF_OLDER: Final = {
    "sdk": ATTACHED,
    "kineto": Traits(),
    "jax": Traits(),
    "cuda": Traits(),
    "pyspy": SAMPLED,
}
"""The sources there were when traces did not say so yet. A new source has no place here."""


def of_older(source: str) -> Traits:
    """What a trace, or the record of a target, is like that does not say it: by its source's name."""
    return _OF_OLDER.get(source, Traits())


def is_recorder(source: str) -> bool:
    """Whether a trace from elsewhere may name this source as a recorder of ours."""
    return source in _OF_OLDER
