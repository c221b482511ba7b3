"""`profctl where` and real jobs of four ranks over gloo: those that stand, and one that does not."""

from __future__ import annotations

import pytest

from tests.corpus.answers.hanging_jobs import KINDS, right, settled, standing
from tests.support.daemon import RunningDaemon
from tests.support.long import long
from tests.support.python_jobs import needs_ptrace

pytestmark = [needs_ptrace, pytest.mark.xdist_group("sdk_hangs")]


def test_a_skipped_call_is_found_with_rank_group_sequence_and_line(daemon: RunningDaemon) -> None:
    with standing("skipped", daemon.environ) as ranks:
        said = settled(ranks, daemon.environ)
    assert right("skipped", said), said


@long
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "skipped"])
def test_each_other_kind_is_told_apart(daemon: RunningDaemon, kind: str) -> None:
    with standing(kind, daemon.environ) as ranks:
        said = settled(ranks, daemon.environ, 3.0 if kind == "healthy" else 60.0)
    assert right(kind, said), said
