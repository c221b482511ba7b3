"""`profctl torch`: the observer of PyTorch's operators."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from profclient.cli.output import emit_json, printable, table
from profclient.cli.units import size

if TYPE_CHECKING:
    from profclient.torch.builds import Build
    from profclient.torch.notes import Note
    from profclient.torch.prune import Old


@click.group()
def torch() -> None:
    """Build the observer of PyTorch's operators, and list builds.

    Attached processes (`profctl run`, `profclient.attach()`) record operators through the observer. The observer costs
    a third of what torch's own profiler costs, and does not pause the job at the end. Each torch needs a build of its
    own: by this command, or by the daemon when a capture meets a process without one.
    """


@torch.command()
@click.option(
    "--python",
    default=sys.executable,
    show_default="this one",
    help="Build for the torch of this Python, which runs with your rights.",
)
@click.option(
    "--into",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory of the build instead of your cache, such as for an image.",
)
@click.option("--force", is_flag=True, help="Compile even if a usable build exists.")
def build(python: str, into: Path | None, force: bool) -> None:
    """Compile the observer for one torch. Takes a C++20 compiler and about 10 s; an existing build is kept.

    \b
      profctl torch build                          for the torch beside profctl
      profctl torch build --python /opt/venv/bin/python
      profctl torch build --into /usr/local/lib/profd/torch      in a Dockerfile
    """
    from profclient.torch import build as building
    from profclient.torch import builds

    found = building.ask(python)
    place = into.absolute() if into else None
    done = None if force else building.there(found, place)
    if done is not None:
        click.echo(f"already built: {done.path} (--force compiles it again)")
    else:
        click.echo(f"compiling for torch {found.key.torch} of {python} ...", err=True)
        done = building.build(found, place)
        click.echo(f"built {done.path}")
    if done.without_cuda:
        click.echo(f"Allocations on CUDA devices will not be recorded: {done.without_cuda}")
    if place is not None and place not in builds.places():
        click.echo(f"Processes find it with {builds.DIRECTORY_VARIABLE}={place}")


@torch.command(name="list", short_help="List builds: usable, being made, and failed.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")
def list_builds(as_json: bool) -> None:
    """List builds: usable ones, those that the daemon is making, and those that failed, with the reason."""
    from profclient.torch import build as building
    from profclient.torch import builds, notes

    places = builds.places()
    found = building.known(places)
    unfinished = [note for place in places for note in notes.all_of(place)]
    if as_json:
        emit_json([*(_described(*one) for one in found), *map(_noted, unfinished)])
        return
    if not found and not unfinished:
        looked = ", ".join(map(str, places))
        click.echo(f"nothing has been built (looked in {looked}).\nBuild it with: profctl torch build")
        return
    rows = [
        (one.key.torch if one else "?", one.key.machine if one else "", one.made if one else "", str(path), problem)
        for one, path, problem in found
    ]
    if rows:
        table(("torch", "machine", "built", "directory", "problem"), rows, wide=("directory", "problem"))
    for note in unfinished:  # a sentence, which a table would cut
        click.echo(
            f"torch {printable(note.torch)} {printable(note.machine)}, in {note.path.parent}: {_unfinished(note)}"
        )


@torch.command(short_help="Remove builds that this version never loads.")
@click.option("--dry-run", is_flag=True, help="Print what would be removed; remove nothing.")
def prune(dry_run: bool) -> None:
    """Remove builds from your cache that this version of profclient never loads.

    These are builds from the sources of another version, and broken builds. The command keeps builds that a running
    process has loaded, builds for every other torch, and builds outside of your cache (--into).
    """
    from profclient.torch import builds, private
    from profclient.torch import prune as pruning

    cache = builds.cache()
    found = []
    if os.path.isdir(cache):
        with private.place(cache.parent.parent) as place:  # of root with another user's environment, no link of theirs
            found = pruning.old(place)
            for one in found:
                _pruned(one, cache, dry_run)
    if not found:
        click.echo(f"nothing to remove in {cache}")


def _pruned(one: Old, cache: Path, dry_run: bool) -> None:
    from profclient.torch import prune as pruning

    path = cache / one.path.name
    if one.used_by:
        click.echo(f"kept {path}: loaded by pid {', '.join(map(str, one.used_by))}")
        return
    if not dry_run:
        pruning.remove(one)
    why = one.why.replace(str(one.path), str(path))
    click.echo(f"{'would remove' if dry_run else 'removed'} {path} ({size(one.size)}): {why}")


def _described(build: Build | None, path: Path, problem: str) -> dict[str, Any]:
    known = {**asdict(build), "key": asdict(build.key)} if build else {}
    return {**known, "path": str(path), "problem": problem}


def _noted(note: Note) -> dict[str, Any]:
    torch = {"torch": note.torch, "machine": note.machine}
    return {"key": torch, "path": str(note.path.parent), "problem": _unfinished(note)}


def _unfinished(note: Note) -> str:
    if note.why:
        return printable(f"could not be built ({note.since}): {note.why} - profctl torch build tries again")
    return printable(f"being built since {note.since}")
