"""What is kept of an environment, and what it says."""

from __future__ import annotations

import pytest
from profd.targets import environ


def test_only_named_variables_are_kept() -> None:
    raw = b"AWS_SECRET_ACCESS_KEY=no\0RANK=3\0RANK=4\0junk\0KINETO_USE_DAEMON=1\0\xff=1\0CUDA_VISIBLE_DEVICES=\0"
    assert environ.parse_environ(raw) == {"RANK": "3", "KINETO_USE_DAEMON": "1", "CUDA_VISIBLE_DEVICES": ""}


@pytest.mark.parametrize(
    ("variables", "rank"),
    [
        ({}, None),
        ({"RANK": "7", "SLURM_PROCID": "1"}, 7),
        ({"OMPI_COMM_WORLD_RANK": "2"}, 2),
        ({"PMI_RANK": "0"}, 0),
        ({"SLURM_PROCID": "5"}, 5),
        ({"RANK": "-1", "SLURM_PROCID": "5"}, 5),
        ({"RANK": "9" * 5000}, None),
        ({"RANK": "\N{ARABIC-INDIC DIGIT ONE}"}, None),
    ],
)
def test_rank(variables: dict[str, str], rank: int | None) -> None:
    assert environ.rank(variables) == rank


@pytest.mark.parametrize(
    ("value", "gpus"),
    [
        (None, None),
        ("", ()),
        ("-1", ()),
        ("0", (0,)),
        ("2, 3", (2, 3)),
        ("1,-1,2", (1,)),
        ("GPU-8932f937", None),
        ("99999", None),
        (",".join(map(str, range(100))), tuple(range(64))),
    ],
)
def test_visible_gpus(value: str | None, gpus: tuple[int, ...] | None) -> None:
    variables = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    assert environ.visible_gpus(variables) == gpus


def test_jobs() -> None:
    assert environ.job({"SLURM_JOB_ID": "12", "PBS_JOBID": "13"}) == "12"
    assert environ.elastic_run({"TORCHELASTIC_RUN_ID": "none"}) == ""
    assert environ.elastic_run({"TORCHELASTIC_RUN_ID": "abc"}) == "abc"
