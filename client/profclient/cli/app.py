"""The `profctl` command: its group, its registry of commands, and exit codes."""

from __future__ import annotations

import difflib
import errno
import functools
import importlib
import io
import json
import os
import re
import sys
from pathlib import Path
from typing import Any, cast

import click

from profclient.errors import ClientError, UsageError
from profclient.text import printable_lines

_TOLD_CHARS = 200  # of an argument that is no text
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # of what stdout leads to

# name -> (module, attribute). Modules are imported when their command runs:
# `profctl --help` and completion stay fast.
COMMANDS: dict[str, tuple[str, str, str]] = {
    "ps": ("ps", "ps", "List the processes that can be profiled, and why the others cannot."),
    "start": ("start", "start", "Profile running processes."),
    "run": ("run", "run", "Run a command whose Python processes can be profiled at any time."),
    "where": ("where", "where", "Show the stacks of processes right now."),
    "stop": ("captures", "stop", "End a capture and keep what it recorded."),
    "wait": ("captures", "wait", "Wait for a capture to end."),
    "retry": ("captures", "retry", "Decode a capture's raw data again."),
    "captures": ("captures", "captures", "List captures."),
    "list": ("traces", "list_traces", "List stored traces."),
    "show": ("traces", "show", "Summarise a trace or a capture."),
    "collect": ("collect", "collect", "Bring the traces of many hosts into one folder."),
    "export": ("export", "export", "Write a trace for another tool."),
    "open": ("open", "open_trace", "Show a trace in a browser, with Perfetto."),
    "ui": ("ui", "ui", "Look at traces in a browser: findings, steps, flame graphs, tables, SQL."),
    "import": ("imports", "import_files", "Store trace files of other tools."),
    "pin": ("traces", "pin", "Keep a trace when the store is full."),
    "unpin": ("traces", "unpin", "Let the store delete a trace again when it is full."),
    "share": ("traces", "share", "Let other users read a trace."),
    "rm": ("traces", "rm", "Delete a trace."),
    "disable": ("host", "disable", "Refuse new captures on this host."),
    "enable": ("host", "enable", "Allow captures again."),
    "store": ("store", "store", "Look after the store."),
    "doctor": ("host", "doctor", "Check what could stand in a capture's way."),
    "torch": ("torch", "torch", "Build the observer of PyTorch's operators."),
    "completion": ("completion", "completion", "Print shell completion."),
}
_SAYS_ITSELF = re.compile(r'"""`profctl (?P<name>\w+)`: (?P<help>.+)"""\n')


@functools.cache
def questions() -> dict[str, tuple[str, str, str]]:
    """Commands that ask a trace something: their files are named as they are, and begin with their line of the help."""
    found = {}
    for file in sorted(Path(__file__).with_name("commands").glob("*.py")):
        with file.open(encoding="utf-8") as text:
            says = _SAYS_ITSELF.fullmatch(text.readline())
            if says and says["name"] not in COMMANDS:
                found[says["name"]] = (file.stem, says["name"], says["help"])
    return found


def commands() -> dict[str, tuple[str, str, str]]:
    """All of them, the main job first."""
    return COMMANDS | questions()


class Commands(click.Group):
    """Commands by name, imported when used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of commands, in the order of the registry."""
        return list(commands())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, or None for an unknown name."""
        found = COMMANDS.get(cmd_name) or questions().get(cmd_name)
        if found is None:
            return None
        module, attribute, _ = found
        command = getattr(importlib.import_module(f"profclient.cli.commands.{module}"), attribute)
        return cast("click.Command", command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click; the error for a mistyped name suggests the nearest command."""
        known = args[0] in COMMANDS or args[0] in questions()
        if not known and (near := difflib.get_close_matches(args[0], commands(), n=1)):
            ctx.fail(f"No such command {args[0]!r}: did you mean {near[0]}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in `--help`, without importing any command."""
        for title, some in (("Commands", COMMANDS), ("Questions about a trace", questions())):
            with formatter.section(title):
                formatter.write_dl([(name, text) for name, (_, _, text) in some.items()])


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--store", "store_dir", type=click.Path(path_type=Path), help="Read the store in this directory, without a daemon."
)
@click.option("--no-color", is_flag=True, envvar="NO_COLOR", help="No colours.")
@click.version_option(package_name="profd", prog_name="profctl")
@click.pass_context
def profctl(ctx: click.Context, store_dir: Path | None, no_color: bool) -> None:
    """Profile running GPU and Python processes, and read the results.

    Ids may be shortened. Without an id a command takes your latest trace or capture.
    PROFD_ADDRESS=unix:/path/profd.sock names the daemon's socket; otherwise profctl tries the usual ones.

    \b
      profctl ps                               list processes
      profctl start --pid 1234 --duration 10s  profile one
      profctl top                              print where its time went
    """
    ctx.obj = store_dir


def main(args: list[str] | None = None) -> None:
    """Run `profctl` and leave with its exit code (docs/commands.md, Exit codes)."""
    arguments = sys.argv[1:] if args is None else args
    _show_what_the_encoding_lacks()
    try:
        code = profctl.main(arguments, prog_name="profctl", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Abort:
        code = 130
    except KeyboardInterrupt:
        code = 130
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except ClientError as error:
        _report(error, "--json" in arguments)
        code = error.exit_code
    except UnicodeEncodeError as error:
        wrong = UsageError(f"an argument is no UTF-8: {ascii(error.object)[:_TOLD_CHARS]}")
        _report(wrong, "--json" in arguments)
        code = wrong.exit_code
    except BrokenPipeError:
        # The reader (head, less) has had enough: that is no failure of ours.
        _write_no_more()
        code = 0
    except OSError as error:
        if error.errno not in _FULL or error.filename is not None:  # a file's is told where it is written
            raise
        _write_no_more()
        failed = ClientError(f"the output cannot be written: {error.strerror}")
        _report(failed, "--json" in arguments)
        code = failed.exit_code
    sys.exit(_code(code))


def _write_no_more() -> None:
    """What is left in the buffer of stdout goes nowhere; at its end the interpreter would tell that it cannot go."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _show_what_the_encoding_lacks() -> None:
    """As escapes, and not as an error: names of others' programs have any letter, PYTHONIOENCODING=latin-1 has few."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _report(error: ClientError, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"error": str(error), "kind": error.kind}), err=True)
    else:
        click.echo(f"profctl: {printable_lines(str(error))}", err=True)  # names of others' programs may be in it


def _code(result: Any) -> int:
    return result if isinstance(result, int) else 0
