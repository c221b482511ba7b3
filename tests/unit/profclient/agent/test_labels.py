"""Labels by the environments that launchers make."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profclient.labels import collectives_kept, labels, one_line

LAUNCHERS = {
    "none": ({}, {}),
    "torchrun": (
        {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "TORCHELASTIC_RUN_ID": "run-7"},
        {"rank": "5", "world": "8", "local_rank": "1", "job": "run-7"},
    ),
    "torchrun without an id": (
        {"RANK": "0", "WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "none"},
        {"rank": "0", "world": "1"},
    ),
    "Slurm": (
        {"SLURM_PROCID": "12", "SLURM_NTASKS": "16", "SLURM_LOCALID": "4", "SLURM_JOB_ID": "991"},
        {"rank": "12", "world": "16", "local_rank": "4", "job": "991"},
    ),
    "torchrun in Slurm": (
        {"RANK": "3", "WORLD_SIZE": "4", "SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_JOB_ID": "7"},
        {"rank": "3", "world": "4", "job": "7"},
    ),
    "Open MPI": (
        {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0"},
        {"rank": "1", "world": "2", "local_rank": "0"},
    ),
    "PMI": ({"PMI_RANK": "6", "PMI_SIZE": "7", "MPI_LOCALRANKID": "2"}, {"rank": "6", "world": "7", "local_rank": "2"}),
    "PMIx": ({"PMIX_RANK": "9"}, {"rank": "9"}),
    "PBS": ({"PBS_JOBID": "12.host"}, {"job": "12.host"}),
    "a pod, told": (
        {"POD_NAME": "train-0", "KUBERNETES_SERVICE_HOST": "10.1", "HOSTNAME": "node"},
        {"pod": "train-0"},
    ),
    "a pod": ({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOSTNAME": "train-1"}, {"pod": "train-1"}),
    "a host": ({"HOSTNAME": "node"}, {}),
    "nonsense": ({"RANK": "-1", "WORLD_SIZE": "1e3", "LOCAL_RANK": "٣"}, {}),
    "nonsense, then sense": ({"RANK": "x", "SLURM_PROCID": "2"}, {"rank": "2"}),
}


@pytest.mark.parametrize(("environ", "expected"), LAUNCHERS.values(), ids=LAUNCHERS)
def test_launchers(environ, expected):
    assert labels(environ) == expected


@given(st.dictionaries(st.sampled_from(["RANK", "SLURM_JOB_ID", "POD_NAME"]), st.text()))
def test_any_value_is_one_line(environ):
    for value in labels(environ).values():
        assert value.isprintable()
        assert value.encode().decode() == value


@given(st.text(alphabet=st.characters()))
def test_one_line_is_what_the_protocol_takes(text):
    cleaned = one_line(text)
    assert not any(ord(char) < 32 or ord(char) == 127 for char in cleaned)
    assert len(cleaned) <= 256


def test_surrogates_of_undecodable_bytes_do_not_raise():
    assert labels({"SLURM_JOB_ID": "job\udcff"})["job"].encode()


@pytest.mark.parametrize(
    ("environ", "kept"),
    [
        ({}, ""),
        ({"TORCH_FR_BUFFER_SIZE": "300"}, "300"),
        ({"TORCH_NCCL_TRACE_BUFFER_SIZE": "200"}, "200"),
        ({"TORCH_FR_BUFFER_SIZE": "100", "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000"}, "2000"),
        ({"TORCH_FR_BUFFER_SIZE": "300 "}, ""),
        ({"TORCH_FR_BUFFER_SIZE": "100", "TORCH_NCCL_TRACE_BUFFER_SIZE": "many"}, ""),
    ],
    ids=range(6),
)
def test_how_many_collectives_a_flight_recorder_keeps(environ: dict[str, str], kept: str) -> None:
    """What is not told for sure is not told: a larger recorder holds the job up when it is asked."""
    assert collectives_kept(environ) == kept
