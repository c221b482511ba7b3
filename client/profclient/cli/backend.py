"""The source of a reading command's traces: the daemon, or the directory of `--store`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from profclient.connection import Daemon
from profclient.traces import RemoteTraces, Traces


@contextmanager
def traces() -> Iterator[Traces]:
    """The traces that this command line means."""
    store = click.get_current_context().find_root().obj
    if store is not None:
        from profclient.offline import OfflineTraces

        yield OfflineTraces(store)
        return
    with Daemon() as daemon:
        yield RemoteTraces(daemon)
