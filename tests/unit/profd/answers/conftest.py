"""What the tests of detectors share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from profd.answers.finding import Verdict

from tests.support.stepped_traces import facts
from tests.support.tables import Event
from tests.support.verdicts import Look


@pytest.fixture
def look(tmp_path: Path) -> Look:
    def ask(detector: Any, events: list[Event], **meta: Any) -> Verdict:
        verdict: Verdict = detector.look(facts(events, tmp_path / str(len(list(tmp_path.iterdir()))), **meta))
        return verdict

    return ask
