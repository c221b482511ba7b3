"""A daemon for the tests of a module that leave it alive."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.daemon import ONE_WORKER, RunningDaemon, running_daemon

ENVIRON = {**ONE_WORKER, "PROFD_SDK_ARENA_BYTES": "24MiB"}


@pytest.fixture(scope="module")
def daemon() -> Iterator[RunningDaemon]:
    with running_daemon(environ=ENVIRON) as found:
        yield found


@pytest.fixture
def own_daemon() -> Iterator[RunningDaemon]:
    """For tests that harm it."""
    with running_daemon(environ=ENVIRON) as daemon:
        yield daemon
