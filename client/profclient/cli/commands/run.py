"""`profctl run`: a command whose Python processes attach by themselves."""

from __future__ import annotations

import os
from pathlib import Path

import click

from profclient import launch

_INJECTION = "CUDA_INJECTION64_PATH"


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--cuda", is_flag=True, help="Let CUDA's driver load the CUPTI collector, also into programs without Python."
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def run(ctx: click.Context, command: tuple[str, ...], cuda: bool) -> None:
    """Run a command whose Python processes can be profiled at any time.

    The program needs no change. Each CPython (3.11 or newer, with profd installed) that the command starts attaches
    to the daemon as it begins; so do its children, such as the workers of torchrun. PROFD_ATTACH=0 and the Python flags
    that ignore the environment (-I, -E, -S) keep a process out. The command takes the place of profctl and keeps its
    own exit code and signals. With PROFD_CAPTURE=iterations:5@step:100 it records itself at that step of
    profclient.step(), or of its optimizer where it does not call that.

    \b
      profctl run -- python train.py
      profctl run -- torchrun --nproc-per-node 8 train.py
      profctl run --cuda -- ./simulation
    """
    ctx.exit(launch.launch(list(command), _injected(os.environ) if cuda else os.environ))


def _injected(environ: os._Environ[str]) -> dict[str, str]:
    """The environment with our collector for CUDA's driver. Raises UsageError where another tool has that place."""
    given = environ.get(_INJECTION, "")
    collector = Path(launch.native("libprofd_cupti.so"))
    if given not in ("", str(collector)):
        raise click.UsageError(f"{_INJECTION} is set to {given}: CUDA loads one tool. Unset it, or leave out --cuda.")
    if not collector.exists():
        raise click.UsageError(f"this installation has no {collector.name}; install profd with its native part.")
    return {**environ, _INJECTION: str(collector)}
