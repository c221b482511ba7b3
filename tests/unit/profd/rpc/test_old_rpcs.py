"""The RPCs of trace.proto and the offline verbs are adapters of the table of questions: they answer as they did."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import old_answers

pytestmark = pytest.mark.slow


async def test_old_rpcs_answer_as_they_did(tmp_path: Path) -> None:
    """Byte by byte, errors and audit lines included."""
    recorded = json.loads(old_answers.FILE.read_text())["rpcs"]
    assert await old_answers.of_rpcs(tmp_path / "state") == recorded


def test_offline_verbs_answer_as_they_did(tmp_path: Path) -> None:
    recorded = json.loads(old_answers.FILE.read_text())["verbs"]
    assert old_answers.of_verbs(tmp_path / "state") == recorded
