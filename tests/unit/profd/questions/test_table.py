"""The table of questions: what its rows promise holds, and values are checked to the letter."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from profclient.cli.commands.export import OPENS_WITH
from profd.derive.timeline.lines import What
from profd.errors import BadInput
from profd.export.redact import NAMES, PATHS, VALUES
from profd.limits import QUESTION_LIST_MAX, QUESTION_TEXT_BYTES_MAX
from profd.model.arguments import INT64_MAX, INT64_MIN, Flag, Integer, Text, Texts, Trace
from profd.model.formats import FORMATS
from profd.model.question import AnswerKind, Cost
from profd.query.averages import SORT_DEFAULT, SORT_KEYS
from profd.query.diff import BY
from profd.query.merged import OF
from profd.query.timeline import CLASSIC, CURRENT
from profd.query.top import BY as BY_OF_CAPTURE
from profd.questions.jobs import DIRECTORIES
from profd.questions.table import QUESTIONS, find
from profd.workers.jobs import imported


@pytest.mark.parametrize("name", [name for name, one in QUESTIONS.items() if one.function])
def test_a_function_takes_what_its_row_says(name: str) -> None:
    question = QUESTIONS[name]
    parameters = inspect.signature(imported(question.function)).parameters
    others = {argument.name for argument in question.others}
    rest = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
    for argument in question.arguments:
        assert argument.name in parameters or argument.name in others or rest, argument.name
        assert argument.help.endswith(".")
    assert question.help.endswith(".")
    # AND so does the one for a capture
    if question.of_capture:
        parameters = inspect.signature(imported(question.of_capture)).parameters
        rest = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
        for argument in (*question.arguments, *question.capture_arguments):
            assert argument.name in parameters or argument.name in others or rest, argument.name
        assert question.answer is not AnswerKind.ROWS  # nothing of a capture is streamed by rows yet
    # AND nothing that streams comes back whole, or is so short that no slow reader keeps it from its end
    assert question.cost is Cost.LONG or question.answer is AnswerKind.VALUE or name == "tiles_index"


def test_nobody_names_a_directory() -> None:
    """What a worker may read is said by the daemon alone."""
    names = {argument.name for question in QUESTIONS.values() for argument in question.arguments}
    assert names.isdisjoint({*DIRECTORIES, "staging", "id", "trace"})
    assert DIRECTORIES == ("trace_dir", "other_dir")


def test_choices_are_those_that_the_functions_know() -> None:
    choices = {(name, one.name): one.choices for name, question in QUESTIONS.items() for one in question.arguments}
    assert choices["top", "sort_by"] == SORT_KEYS
    assert choices["export", "redact"] == (PATHS, VALUES, NAMES)
    assert choices["timeline", "lines"] == tuple(what.value for what in What)
    assert choices["timeline", "rules"] == (CURRENT, CLASSIC)
    assert choices["diff", "by"] == BY
    assert choices["merged_tree", "of"] == OF
    assert QUESTIONS["top"].capture_arguments[0].choices == BY_OF_CAPTURE
    defaults = {(name, one.name): one.default for name, question in QUESTIONS.items() for one in question.arguments}
    assert defaults["top", "sort_by"] == SORT_DEFAULT


def test_profctl_and_its_page_know_every_format_of_an_export() -> None:
    assert sorted(OPENS_WITH) == sorted(FORMATS)
    page = (Path(__file__).parents[4] / "docs" / "export.md").read_text()
    assert [name for name in FORMATS if f"`{name}`" not in page] == []


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (5, 5),
        ("5", 5),
        (5.0, 5),
        (float(1 << 53), 1 << 53),
        (str(INT64_MAX), INT64_MAX),
        (str(INT64_MIN), INT64_MIN),
        (INT64_MAX, INT64_MAX),
    ],
)
def test_integers(value: object, number: int) -> None:
    assert Integer("n", "").checked(value) == number


@pytest.mark.parametrize(
    "value",
    [
        *(True, None, 1.5, float("nan"), float("inf"), float("-inf"), float(1 << 54), [5], {"n": 5}, b"5"),
        *("", " 5", "5 ", "0x5", "5e3", "٣", "--5", "9" * 20, "9" * 5000, str(INT64_MAX + 1)),
        *(INT64_MAX + 1, INT64_MIN - 1),
    ],
)
def test_what_is_no_integer(value: Any) -> None:
    with pytest.raises(BadInput, match=r"'n' must be an integer\.|n must be a number from -9223372036854775808"):
        Integer("n", "").checked(value)


def test_limits_are_inclusive_and_named() -> None:
    few = Integer("n", "", least=1, most=3)
    assert [few.checked(number) for number in (1, 2, 3)] == [1, 2, 3]
    for number in (0, 4):
        with pytest.raises(BadInput, match=f"n must be a number from 1 to 3, not {number}"):
            few.checked(number)


@pytest.mark.parametrize(
    ("argument", "value", "says"),
    [
        (Flag("f", ""), "true", "'f' must be true or false."),
        (Flag("f", ""), 1, "'f' must be true or false."),
        (Text("t", ""), 5, "'t' must be a string."),
        (Text("t", ""), ["a"], "'t' must be a string."),
        (Text("t", "", choices=("a", "b")), "{name.__class__}", "t cannot be '{name.__class__}'; it is one of: a, b"),
        (Text("t", ""), "é" * QUESTION_TEXT_BYTES_MAX, f"t is longer than {QUESTION_TEXT_BYTES_MAX} bytes, the limit"),
        (Trace("o", ""), "x" * 5000, f"o is longer than {QUESTION_TEXT_BYTES_MAX} bytes, the limit"),
        (Texts("l", ""), "a", "'l' must be a list of strings."),
        (Texts("l", ""), ["a", 5], "'l' must be a list of strings."),
        (Texts("l", ""), ["a", ["b"]], "'l' must be a list of strings."),
        (Texts("l", ""), ["a"] * 65, f"l is a list of 65, the limit is {QUESTION_LIST_MAX}"),
        (Texts("l", "", choices=("a", "b")), ["a", "c"], "l cannot have 'c'; they are of: a, b"),
    ],
)
def test_what_an_argument_may_not_be(argument: Any, value: object, says: str) -> None:
    with pytest.raises(BadInput) as refused:
        argument.checked(value)
    assert str(refused.value) == says


def test_a_refusal_shows_some_of_what_was_said_and_no_control_characters() -> None:
    for question in QUESTIONS.values():
        for argument in (one for one in question.arguments if one.choices):
            said = "\0\x1b[2J\n" + "x" * 50_000
            with pytest.raises(BadInput) as caught:
                argument.checked([said] if isinstance(argument, Texts) else said)
            assert str(caught.value).isprintable(), argument.name
            assert len(str(caught.value)) < 1000, argument.name


def test_what_nobody_knows() -> None:
    with pytest.raises(BadInput, match="there is no question 'tops'; there are: summary, top, tree"):
        find("tops")
    with pytest.raises(BadInput, match="tree has no argument 'depth'; it has: max_depth, from_row"):
        find("tree").checked({"depth": 5})
    with pytest.raises(BadInput, match="steps has no argument 'raw'; it has none"):
        find("steps").checked({"raw": True})


def test_absent_and_null_are_the_default() -> None:
    assert find("tree").checked({}) == find("tree").checked({"from_row": None, "max_depth": None})
    assert find("diff").checked({"by": ""}) == {"other": "", "by": "name"}


def test_the_daemon_reads_it_without_the_engine() -> None:
    """Functions are named by their path: numpy and pyarrow come with them, in workers."""
    script = "import json, sys, profd.service.assembly; print(json.dumps([*sys.modules]))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = json.loads(done.stdout)
    assert {"numpy", "pyarrow", "duckdb", "profd.events", "profd.query", "profd.export"}.isdisjoint(loaded)
    script = "import json, sys, profd.questions.table; print(json.dumps([*sys.modules]))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    ours = {name for name in json.loads(done.stdout) if name.startswith("profd.")}
    assert ours == {
        *("profd.errors", "profd.limits", "profd.model", "profd.questions", "profd.questions.table"),
        *(f"profd.model.{name}" for name in ("arguments", "formats", "question")),
    }
