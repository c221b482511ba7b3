"""`profctl ps`."""

from __future__ import annotations

from typing import Any

import click
from profproto.v1 import capture_pb2

from profclient.as_json import process_json
from profclient.cli.options import json_option, selector, selector_options
from profclient.cli.output import emit_json, say, short, table, wrapped
from profclient.connection import Daemon

COMMAND_CHARS = 24  # of a command and of a job, by which people know them; other columns give way before


@click.command()
@selector_options
@click.option("--all", "everything", is_flag=True, help="Also list processes that are neither Python nor on a GPU.")
@json_option
def ps(everything: bool, as_json: bool, **values: Any) -> None:
    """List the processes that can be profiled, and why the others cannot."""
    request = capture_pb2.ListTargetsRequest(selector=selector(values, needed=False), all=everything)
    with Daemon() as daemon:
        targets = daemon.call(daemon.captures.ListTargets, request).targets
    if as_json:
        emit_json([process_json(target) for target in targets])
        return
    if not targets:
        say("You have no Python or GPU process here. `profctl ps --all` shows every process.")
        return
    _print(targets)


def _print(targets: list[capture_pb2.Target]) -> None:
    rows = [
        (
            str(target.pid),
            target.user,
            target.job or "-",
            str(target.rank) if target.HasField("rank") else "-",
            ",".join(str(gpu) for gpu in target.gpus) or "-",
            target.framework or "-",
            ",".join(target.sources) or "-",
            target.state,
            short(target.command),
        )
        for target in targets
    ]
    columns = ("PID", "USER", "JOB", "RANK", "GPU", "FRAMEWORK", "SOURCES", "STATE", "COMMAND")
    table(columns, rows, right=("PID", "RANK"), wide=("COMMAND", "JOB"), spare=("USER",), least=COMMAND_CHARS)
    _remarks(targets)


def _remarks(targets: list[capture_pb2.Target]) -> None:
    """Each reason once, with the processes it holds for: hundreds of them share a few."""
    grouped: dict[tuple[str, str], list[int]] = {}
    for target in targets:
        # A plain Python program is sampled; that it is not PyTorch needs no remark. Nor do attached ones: they are
        # recorded from the inside.
        if target.reason and (target.fix or not target.sources) and not target.attached:
            grouped.setdefault((target.reason, target.fix), []).append(target.pid)
    for (reason, fix), pids in grouped.items():
        who = ", ".join(str(pid) for pid in pids[:6]) + (f" and {len(pids) - 6} more" if len(pids) > 6 else "")
        say("\n" + wrapped(f"{who}: {reason}", hang=2) + ("\n" + wrapped(f"  → {fix}", hang=4) if fix else ""))
