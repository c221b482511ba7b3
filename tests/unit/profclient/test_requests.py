"""What a program may ask for, before anything of it reaches a daemon."""

from __future__ import annotations

import math
from typing import Any

import pytest
from profclient import requests as module
from profclient.requests import ask_as_told, request_capture

JOB = {"SLURM_JOB_ID": "4711", "SLURM_RESTART_COUNT": "0", "RANK": "3", "LOCAL_WORLD_SIZE": "8"}


class Recorder:
    """Takes what is asked."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self.at: list[tuple[int, bool, dict[str, str]]] = []

    def agent_state(self) -> tuple[str]:
        return ("connected",)

    def agent_ask(self, lines: bytes) -> tuple[int, str]:
        self.asked.append(lines)
        return len(self.asked), ""

    def agent_came_of(self, number: int) -> None:
        return None

    def agent_ask_at(self, step: int, begins: bool, lines: bytes) -> None:
        self.at.append((step, begins, fields(lines)))


def fields(lines: bytes) -> dict[str, str]:
    text = lines.decode()
    assert all(line.isprintable() for line in text.split("\n"))
    return dict(line.split("=", 1) for line in text.splitlines())


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    played = Recorder()
    monkeypatch.setattr(module, "_recorder", played)
    return played


def test_a_step_of_the_job_is_told_with_what_its_ranks_have_in_common(recorder: Recorder) -> None:
    assert ask_as_told({**JOB, "PROFD_CAPTURE": "iterations:5@step:100"}) == ""
    assert ask_as_told({**JOB, "PROFD_CAPTURE": "duration:5s@step:100"}) == ""
    (step, begins, first), (_, waits, second) = recorder.at
    assert (step, begins, first["iterations"], first["begin_step"], first["local"]) == (100, True, "5", "100", "8")
    assert (waits, second["duration"], "begin_step" in second) == (False, "5000000000", False)
    assert first["key"] != second["key"]


@pytest.mark.parametrize(
    "text",
    [
        *("iterations:5", "iterations:5@", "iterations:@step:100", "iterations:5@step:", "iterations:5@epoch:100"),
        *("steps:5@step:100", "iterations:5s@step:100", "iterations:-5@step:100", "iterations:5@step:-1"),
        *("iterations:0@step:100", "duration:0s@step:100", "duration:1.5s@step:100", "iterations:\u0665@step:100"),
        *(
            "iterations:5@step:18446744073709551716",
            "iterations:99999999999999999999@step:100",
            "@",
            "x" * 100_000,
            f"iterations:{5:0100}@step:100",
        ),
        *("iterations:5@step:100\niterations=6", "iterations:5@step:100@step:200"),
    ],
    ids=lambda text: ascii(text)[1:24],
)
def test_a_variable_that_says_something_else_is_told_and_nothing_is_asked(recorder: Recorder, text: str) -> None:
    why = ask_as_told({"PROFD_CAPTURE": text})
    assert "is not understood: give one such as" in why
    assert why.isprintable()
    assert len(why) < 500
    assert recorder.at == []


def test_the_first_step_cannot_be_whole(recorder: Recorder) -> None:
    assert "the first step that can be recorded whole is 2" in ask_as_told({"PROFD_CAPTURE": "iterations:5@step:1"})
    assert recorder.at == []


@pytest.mark.parametrize(
    "said",
    [
        *({"iterations": -1}, {"iterations": 1 << 64}, {"iterations": 10**5000}, {"begin_step": -1}),
        *({"begin_step": 1 << 64}, {"duration": -1.0}, {"duration": math.inf}, {"duration": math.nan}),
        *({"duration": 1e300}, {"iterations": "many"}, {"reason": 5}),
    ],
    ids=lambda said: next(iter(said)),
)
def test_a_number_that_no_daemon_reads_is_refused_here(recorder: Recorder, said: dict[str, Any]) -> None:
    """Told, it would cost the connection, and again after each reconnect."""
    asked = request_capture(**{"iterations": 5, **said})
    assert (asked.state, recorder.asked) == ("refused", [])
    assert asked.why.isprintable()


def test_a_reason_and_a_key_are_one_line_each(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "4711\nhosts=9")
    hostile = "slow\niterations=9\0\x1b[2J\udc80=" + "x" * 100_000
    request_capture(iterations=5, reason=hostile, key=hostile)
    said = fields(recorder.asked[0])
    assert (said["iterations"], "hosts" in said) == ("5", False)
    assert max(map(len, said.values())) <= 256


def test_long_keys_of_which_only_the_end_differs_are_two(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "r" * 250)
    for key in ("step 812", "step 813", "step 812"):
        request_capture(iterations=5, key=key)
    first, second, third = (fields(asked)["key"] for asked in recorder.asked)
    assert first == third != second


def test_a_key_without_a_job_is_of_this_process_alone(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Yesterday's processes had the same."""
    for name in ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "TORCHELASTIC_RUN_ID", "PROFD_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    request_capture(iterations=5, key="slow")
    assert "key" not in fields(recorder.asked[0])


@pytest.mark.parametrize("name", ["SLURM_RESTART_COUNT", "SLURM_STEP_LAUNCHER_PORT"])
def test_a_job_that_runs_again_has_other_keys(recorder: Recorder, name: str) -> None:
    """Also one whose id a controller without its state has given again."""
    for value in ("0", "1"):
        ask_as_told({**JOB, name: value, "PROFD_CAPTURE": "iterations:5@step:100"})
    assert recorder.at[0][2]["key"] != recorder.at[1][2]["key"]
