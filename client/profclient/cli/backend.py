"""The source of a reading command's traces: the daemon, the directory of `--store`, or one that `collect` made."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

import click

from profclient.connection import Daemon
from profclient.errors import NotFoundError, UsageError
from profclient.traces import RemoteTraces, Traces, is_fleet


@contextmanager
def traces() -> Iterator[Traces]:
    """The traces that this command line means."""
    store = folder()
    if store is not None:
        from profclient.offline import OfflineTraces

        yield OfflineTraces(store)
        return
    with Daemon() as daemon:
        yield RemoteTraces(daemon)


def folder() -> Path | None:
    """The directory that this command line asks; None: the daemon. Raises UsageError as `_collected`."""
    return click.get_current_context().find_root().obj or _collected()


def following(command: str) -> str:
    """A next command about the same traces: with the --store of this one, or the folder of its capture."""
    program, _, rest = command.partition(" ")
    context = click.get_current_context(silent=True)
    if context is None or rest.startswith("start "):
        return command
    given = context.find_root().obj
    store = given or _collected()
    if store is None or (not given and any(map(is_fleet, rest.split()))):  # an id of a fleet leads there by itself
        return command
    return f"{program} --store {shlex.quote(str(store))} {rest}"


def _collected() -> Path | None:
    """The folder with the captures of many hosts that the command line names, if it names any.

    No daemon has their traces together, so none is asked. Raises UsageError where one has not been brought there.
    """
    context = click.get_current_context()
    given = (context.params.get(one.name or "") for one in context.command.params if isinstance(one, click.Argument))
    arguments = chain.from_iterable(value if isinstance(value, tuple) else (value,) for value in given)
    # A file of this name is one to import.
    named = [value for value in arguments if isinstance(value, str) and is_fleet(value) and not os.path.isfile(value)]
    folders = {_folder_of(one): one for one in named}
    if len(folders) > 1:
        places = " and ".join(f"{one} in {folder}" for folder, one in folders.items())
        raise UsageError(f"captures in two folders cannot be compared: {places}. Collect both into one --to DIR.")
    return next(iter(folders), None)


def _folder_of(named: str) -> Path:
    from profclient.fleet import records

    try:
        record = records.find(named)
    except NotFoundError:
        raise UsageError(
            f"{named} is a capture of many hosts, and none that was begun or collected here: `profctl collect {named} "
            "--hosts … --to DIR` (or --job … of Slurm) brings it, and `profctl --store DIR` asks about a folder "
            "that is there."
        ) from None
    if not record.collected:
        raise UsageError(
            f"{record.id} is a capture of many hosts: bring it here with `profctl collect {record.id} --to DIR`."
        )
    folder = Path(record.collected)
    if not (folder / f"capture={record.id}").is_dir():
        raise UsageError(
            f"{record.id} was collected into {folder}, and is not there any more: `profctl collect {record.id} "
            "--to DIR` brings it again while its hosts have it; --store names the folder where it has moved."
        )
    return folder
