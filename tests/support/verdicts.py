"""What a detector says, as tests look at it."""

from __future__ import annotations

from collections.abc import Callable

from profd.answers.finding import Finding, Silence, Verdict

Look = Callable[..., Verdict]
"""A detector, events, and what their trace says of itself."""


def found(verdict: Verdict) -> Finding:
    """The finding; a failure where there is none."""
    assert isinstance(verdict, Finding), verdict
    return verdict


def silent(verdict: Verdict) -> bool:
    """Whether it found nothing, and lacked nothing for that."""
    return isinstance(verdict, Silence) and not verdict.lacking
