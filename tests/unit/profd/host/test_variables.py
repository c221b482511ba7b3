"""Variables of the environment: one that nobody reads is a slip, and said to be."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from profd.errors import BadInput
from profd.host import config, variables

ROOT = Path(__file__).parents[4]
SETTINGS = [config.variable(key) for key in config.every_key()]
NOT_OF_THE_ENVIRONMENT = {"PROFD_ACTION", "PROFD_UID"}  # fields of journald


def test_an_unknown_one_is_named_with_what_was_meant() -> None:
    with pytest.raises(BadInput, match=r"no variable PROFD_WORKRES\. Did you mean PROFD_WORKERS\? Correct or unset it"):
        config.load({}, {"PROFD_WORKRES": "2"}, user=True)


def test_nothing_is_guessed_where_nothing_is_near() -> None:
    with pytest.raises(BadInput, match=r"no variable PROFD_QQQ\. Correct or unset it"):
        variables.check({"PROFD_QQQ": ""}, SETTINGS)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PROFD_ADDRESS", "unix:/run/profd/profd.sock"),
        ("PROFD_TEST_ANYTHING", "1"),
        ("PROFD_SERVICE_HOST", "10.0.0.1"),
        ("PROFD_SERVICE_PORT_METRICS", "9477"),
        ("PROFD_PORT", "tcp://10.0.0.1:9477"),
        ("PROFD_PORT_9477_TCP_ADDR", "10.0.0.1"),
        ("PROFD_METRICS_SERVICE_HOST", "10.0.0.1"),
        ("PROFD_METRICS_PORT", "tcp://10.0.0.1:9477"),
        ("PROFX", ""),
    ],
)
def test_those_of_other_programs_and_of_kubernetes_are_left_alone(name: str, value: str) -> None:
    variables.check({name: value}, SETTINGS)


def test_a_port_that_kubernetes_did_not_write_is_a_slip() -> None:
    with pytest.raises(BadInput, match="PROFD_PORT"):
        variables.check({"PROFD_PORT": "9477"}, SETTINGS)


def test_every_variable_that_this_project_reads_is_known() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    code = [ROOT / name for name in listed.split("\0") if re.search(r"(\.(py|sh|c|cpp|h|hpp|toml)|Makefile)$", name)]
    read = {
        name
        for file in code
        if file != Path(__file__) and file.is_file()
        for name in re.findall(r"[\"' ](PROFD_[A-Z_]+)[\"'=]", file.read_text())
        if not name.startswith(variables._FAMILIES)
    }
    unknown = read - {*SETTINGS, *variables.OTHERS} - NOT_OF_THE_ENVIRONMENT
    assert unknown == set()
