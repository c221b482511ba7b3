"""Troubles more, which were written without sight of the rules: the collector, a lock, the interpreter's lock."""

from __future__ import annotations

import re

import pytest

from tests.corpus.answers import labels
from tests.integration.cli.conftest import Host
from tests.integration.torch_observer.conftest import torch_builds  # noqa: F401 - a fixture
from tests.integration.troubles.test_troubles import (  # noqa: F401 - host is a fixture
    CAPTURES_SECONDS,
    attached,
    host,
    names_the_cause,
    pytestmark,
    sampled,
)
from tests.support.waiting import until

TROUBLES = [name for name, label in labels("attached").items() if label.test.endswith("test_waits.py")]


@pytest.mark.parametrize("program", TROUBLES)
def test_what_the_program_waits_for_is_named(host: Host, program: str) -> None:  # noqa: F811
    """On a host that is busier than the program waits, another capture."""
    with attached(host, program) as pid:
        answer = until(lambda: named(sampled(host, pid), program), "the cause is named", CAPTURES_SECONDS)
    assert not re.search(r"Node\.__init__ \(collector\.py:\d+\) takes", answer)


def named(answer: str, program: str) -> str:
    return answer if names_the_cause(answer, program) else ""
