"""The daemon's side of a streamer's socket."""

from __future__ import annotations

import json

import pytest
from profd.attached.ingest.streamer_process import Said, _said
from profd.limits import STREAMER_MESSAGE_BYTES_MAX

KEY = {"incarnation": "a", "epoch": "1"}


def test_a_word() -> None:
    assert _said(json.dumps({"said": "failed", "why": "x" * 2000, **KEY}).encode()) == Said(
        "failed", (10, 1), "x" * 1024
    )


@pytest.mark.parametrize(
    "untrusted",
    [
        b"",
        b"[]",
        b"7",
        b'"a"',
        b'{"said": 1}',
        b"[" * STREAMER_MESSAGE_BYTES_MAX,
        b'{"said": "x", "incarnation": 1e999}',
    ],
)
def test_what_is_no_word(untrusted: bytes) -> None:
    assert _said(untrusted) is None
