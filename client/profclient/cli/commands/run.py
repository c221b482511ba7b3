"""`profctl run`: a command whose Python processes attach by themselves."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import NoReturn

import click

from profclient.address import candidates

STARTUP = Path(__file__).parent.parent.parent / "startup"
_INJECTION = "CUDA_INJECTION64_PATH"
NOT_FOUND, NOT_EXECUTABLE = 127, 126  # as of a shell


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--cuda", is_flag=True, help="CUDA's driver loads our collector, also into programs without Python.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def run(ctx: click.Context, command: tuple[str, ...], cuda: bool) -> None:
    """Run a command whose Python processes can be profiled at any time.

    No change to the program: each CPython (3.11 or newer, with profd installed) that the command starts attaches to
    the daemon as it begins, its children too, such as the workers of torchrun. Python flags that ignore the
    environment (-I, -E, -S) keep a process out; so does PROFD_ATTACH=0. The command takes the place of profctl: its
    exit code and signals are its own.

    \b
      profctl run -- python train.py
      profctl run -- torchrun --nproc-per-node 8 train.py
      profctl run --cuda -- ./simulation
    """
    if not any(path.with_name("agent.sock").exists() for path in candidates()):
        click.echo("profctl run: no profd listens here; the command runs, and attaches when one appears.", err=True)
    try:
        _become(command, environment(_with_nvtx(_injected(os.environ) if cuda else {**os.environ})))
    except FileNotFoundError:
        click.echo(f"profctl run: there is no command {command[0]!r}", err=True)
        ctx.exit(NOT_FOUND)
    except OSError as error:
        click.echo(f"profctl run: {command[0]!r} cannot be run: {error.strerror}", err=True)
        ctx.exit(NOT_EXECUTABLE)


def _injected(environ: os._Environ[str]) -> dict[str, str]:
    """With our collector for CUDA's driver to load. Raises UsageError where that place is taken."""
    given = environ.get(_INJECTION, "")
    from profclient.agent import COLLECTOR  # brings the native module, which other commands can do without

    collector = Path(COLLECTOR)
    if given not in ("", str(collector)):
        raise click.UsageError(f"{_INJECTION} is set to {given}: CUDA loads one tool. Unset it, or leave out --cuda.")
    if not collector.exists():
        raise click.UsageError(f"this installation has no {collector.name}; install profd with its native part.")
    return {**environ, _INJECTION: str(collector)}


def _with_nvtx(environ: dict[str, str]) -> dict[str, str]:
    """With our library for NVTX, unless another tool's is named: the program's NVTX ranges are recorded, too."""
    from profclient.agent import NVTX, NVTX_VARIABLE  # as above

    if environ.get(NVTX_VARIABLE) or not Path(NVTX).exists():
        return environ
    return {**environ, NVTX_VARIABLE: NVTX}


def environment(environ: os._Environ[str] | dict[str, str]) -> dict[str, str]:
    """That of the command: its Pythons find our start-up folder first."""
    path = environ.get("PYTHONPATH", "")
    # An empty entry would mean the working directory.
    return {
        **environ,
        "PYTHONPATH": f"{STARTUP}{os.pathsep}{path}" if path else str(STARTUP),
        "PROFD_RUN": str(os.getpid()),  # exec keeps it: this process is the one that may speak
    }


def _become(command: tuple[str, ...], environ: dict[str, str]) -> NoReturn:
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python; the command must not inherit that
        signal.signal(ignored, signal.SIG_DFL)
    os.execvpe(command[0], command, environ)  # noqa: S606 - what the user typed is to be run
