"""Numbers that stand in two places are the same, and names are what the contract says."""

import pytest
from profclient import as_json
from profclient.cli.commands import diff as diff_command
from profclient.cli.commands import traces as traces_commands
from profclient.ui import asking
from profd.events import DeviceType, Kind
from profd.model.capture import Reason, State
from profd.query import diff
from profd.questions import table
from profd.rpc import traces
from profproto.v1 import capture_pb2


@pytest.mark.parametrize("state", State)
def test_states_are_those_of_the_contract(state):
    assert capture_pb2.State.Value(f"STATE_{state.name}") == state
    assert as_json.state_name(state) == state.label


def test_there_is_no_state_or_reason_that_only_one_side_knows():
    assert len(capture_pb2.State.keys()) == len(State) + 1
    assert len(capture_pb2.Reason.keys()) == len(Reason)


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason])
def test_reasons_are_those_of_the_contract(reason):
    assert capture_pb2.Reason.Value(f"REASON_{reason.name}") == reason
    assert as_json.reason_name(reason) == reason.label


def test_kinds_and_device_types_are_the_fixed_words():
    kinds = (
        "cpu_op user_annotation python_function instant runtime driver kernel memcpy memset sync overhead "
        "gpu_user_annotation memory counter sample trace other"
    )
    assert sorted(kind.label for kind in Kind) == sorted(kinds.split())
    devices = "CPU CUDA HIP XPU MTIA TPU other"
    assert sorted(device.label for device in DeviceType) == sorted(devices.split())


def test_what_the_client_says_of_answers_is_what_the_daemon_gives():
    assert traces_commands.DAEMON_LISTS_MAX == traces.LIST_MAX
    assert diff_command.NO_MODULE == diff.NO_MODULE


def test_what_the_page_asks_are_questions():
    assert table.QUESTIONS.keys() >= asking.QUESTIONS
