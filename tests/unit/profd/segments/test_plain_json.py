"""Numbers of any size in foreign JSON, and in ours."""

from __future__ import annotations

import json
import math

import pytest
from profd.segments import plain_json
from profd.segments.meta import encode_json

NINES = "9" * 5000


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[1e999, -1E999]", ["1e999", "-1E999"]),
        (f"[{NINES}, 12]", [NINES, 12]),
        ('{"a": [1.5, 1e-999, null, true]}', {"a": [1.5, 0.0, None, True]}),
    ],
)
def test_numbers_that_are_none_of_python_are_their_text(text: str, value: object) -> None:
    assert plain_json.loads(text) == value


@pytest.mark.parametrize("write", [plain_json.dumps, lambda value: encode_json({"\ud800": value}).decode()])
def test_what_json_has_no_word_for_is_null(write) -> None:
    text = write({"a": [math.inf, (-math.inf, 1.5)], "b": math.nan, "c": 1})
    assert json.loads(text.replace("\\ud800", ""), parse_constant=pytest.fail) in (
        {"a": [None, [None, 1.5]], "b": None, "c": 1},
        {"": {"a": [None, [None, 1.5]], "b": None, "c": 1}},
    )
