"""Options that several commands share, and the messages they become."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click
from profproto.v1 import capture_pb2

from profclient.cli.output import say
from profclient.cli.units import (
    duration,
    parse_duration_ns,
    parse_hertz,
    parse_share,
    parse_steps,
    parse_window_ns,
    seconds,
)
from profclient.errors import UsageError
from profclient.fleet.hostlist import numbers

Function = TypeVar("Function", bound=Callable[..., Any])
_EXTRA_NUMBER: Final = re.compile(r"extra arguments? \((\d{1,10})\b")
_INT32_MAX: Final = 2**31 - 1  # of the contract's fields
_INT64_MAX: Final = 2**63 - 1
REDACTIONS = ("paths", "values", "names")

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")


def _with(function: Function, *options: Callable[[Function], Function]) -> Function:
    """The function with these options, in the order in which --help lists them."""
    for option in reversed(options):
        function = option(function)
    return function


class OfProcesses(click.Command):
    """A command of processes that options name. Its error about a number alone asks whether a pid was meant."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if found := _EXTRA_NUMBER.search(error.message):
                raise click.UsageError(f"{error.message}. Did you mean --pid {found[1]}?", ctx) from None
            raise


def selector_options(function: Function) -> Function:
    """--pid --user --job --gpu --rank --children, each repeatable where that makes sense."""
    return _with(
        function,
        click.option(
            "--pid",
            "pids",
            type=click.IntRange(max=_INT32_MAX),
            multiple=True,
            help="This process. The pid is the one that you see. Repeatable.",
        ),
        click.option("--user", "users", multiple=True, help="Processes of this user. Repeatable."),
        click.option("--job", "jobs", multiple=True, help="Processes of this job. Repeatable."),
        click.option(
            "--gpu",
            "gpus",
            type=click.IntRange(0, _INT32_MAX),
            multiple=True,
            help="Processes on this GPU of the host. Repeatable.",
        ),
        click.option("--rank", "ranks", multiple=True, help="Processes of these ranks: 0,8-15. Repeatable."),
        click.option("--children", is_flag=True, help="Also all descendants of the chosen processes."),
    )


def selector(values: dict[str, Any], needed: bool = True) -> capture_pb2.Selector:
    """The Selector of a command's options, which are taken out of `values`. Raises UsageError if empty."""
    message = capture_pb2.Selector(
        pids=values.pop("pids"),
        users=values.pop("users"),
        jobs=values.pop("jobs"),
        gpus=values.pop("gpus"),
        ranks=[rank for text in values.pop("ranks") for rank in numbers(text)],
        children=values.pop("children"),
    )
    chosen = message.pids or message.users or message.jobs or message.gpus or message.ranks
    if needed and not chosen:
        raise UsageError(
            "no process was named. Give --pid (or --user, --job, --gpu, --rank); `profctl ps` lists processes."
        )
    if any(pid <= 0 for pid in message.pids):
        raise UsageError("a pid is a positive number; `profctl ps` lists pids.")
    return message


_WINDOW_OPTIONS: Final = (
    click.option("--duration", "-d", help="Length of the window: 500ms, 10s, 1m."),
    click.option(
        "--iterations", "-n", type=click.IntRange(1, _INT32_MAX), help="Length of the window in training steps."
    ),
    click.option(
        "--at-step",
        type=click.IntRange(0, _INT64_MAX),
        help="With --iterations: the first of them, as the program numbers its steps (profclient.step()).",
    ),
)
# What is to be recorded.
_EVENT_OPTIONS: Final = (
    click.option("--shapes", is_flag=True, help="Record the shapes of inputs."),
    click.option(
        "--stacks",
        is_flag=True,
        help="Record every Python call. A call costs an attached process (sdk) 0.09 us, from Python 3.12 on "
        "0.06 us: code that mostly calls runs 1.6 to 3 times as long, on 3.12 1.1 to 1.6 times. Sampling "
        "(--source pyspy) costs a few percent, with 64 threads a quarter.",
    ),
    click.option(
        "--modules",
        is_flag=True,
        help="Record calls of nn.Module with their paths in the model. Needs --stacks.",
    ),
    click.option("--memory", is_flag=True, help="Record allocations."),
    click.option("--flops", is_flag=True, help="Count FLOPS, from shapes."),
    click.option("--c-calls", is_flag=True, help="With --stacks: record C functions, too (0.07 us a call)."),
    click.option(
        "--torch",
        type=click.Choice(("auto", "observer", "profiler")),
        default="auto",
        help="Recorder of operators in an attached PyTorch process: profd's observer or, with --force, "
        "torch's own profiler, which can crash the process.",
    ),
)
# How, and within which bounds.
_WAY_OPTIONS: Final = (
    click.option(
        "--max-overhead",
        help="Slow the steps by at most this share, such as 2%. The costliest kinds of events give way; "
        "a source that has none to leave out ends early.",
    ),
    click.option("--source", default="", help="Use this source; `profctl doctor` lists their names."),
    click.option(
        "--port",
        type=click.IntRange(1, 65535),
        help="Port of the profiler server, in a JAX or TensorFlow process with several. Implies --source jax.",
    ),
    click.option(
        "--collect-timeout",
        help="Time limit for a JAX or TensorFlow process to hand over a window. Implies --source jax.",
    ),
    click.option(
        "--last",
        help="Record a JAX or TensorFlow process until you stop the capture, and keep only the last part: 5s. "
        "Implies --source jax.",
    ),
    click.option(
        "--samples",
        "--sample-hz",
        "samples",
        help="Sample Python stacks at this rate: 100hz. A sampler reads them from outside, beside what an "
        "attached process (sdk) records, and never pauses the process. At 100hz the CPU time of the process is "
        "1.00 times what it was, with 64 threads 1.02 times; the sampler takes 2 % of a core, "
        "with 64 threads 16 %.",
    ),
    click.option("--no-gpu-metrics", is_flag=True, help="Do not sample the GPUs of the process (10 times a second)."),
    click.option(
        "--gpu-fallback",
        is_flag=True,
        help="Where CUPTI is not available: measure device times of PyTorch's operators with two CUDA events "
        "each. Ends a job that captures CUDA graphs meanwhile: takes --force.",
    ),
    click.option("--native", is_flag=True, help="Sample native frames, too. The sampler pauses the process."),
    click.option("--strict", is_flag=True, help="Refuse the capture where an option cannot be served."),
    click.option("--force", is_flag=True, help="Go beyond limits that protect the job."),
)


def capture_options(function: Function) -> Function:
    """The window and what is to be recorded in it."""
    return _with(function, *_WINDOW_OPTIONS, *_EVENT_OPTIONS, *_WAY_OPTIONS)


def options(values: dict[str, Any]) -> capture_pb2.Options:
    """The Options of a command's options, which are taken out of `values`."""
    duration = values.pop("duration")
    message = capture_pb2.Options(
        duration_ns=0 if duration is None else parse_duration_ns(duration),
        iterations=values.pop("iterations") or 0,
        begin_step=values.pop("at_step"),
        **{
            name: values.pop(name)
            for name in (
                "shapes",
                "stacks",
                "modules",
                "memory",
                "flops",
                "source",
                "native",
                "c_calls",
                "no_gpu_metrics",
                "gpu_fallback",
                "strict",
                "force",
            )
        },
    )
    message.port = values.pop("port", None) or 0
    patience = values.pop("collect_timeout", None)
    if patience is not None:
        message.collect_timeout_ns = parse_duration_ns(patience)
    last = values.pop("last", None)
    if last is not None:
        message.last_ns = parse_duration_ns(last)
    if (message.port or message.collect_timeout_ns or message.last_ns) and not message.source:
        message.source = "jax"
    recorder = values.pop("torch")
    if recorder != "auto":
        message.torch = recorder
    overhead = values.pop("max_overhead")
    if overhead is not None:
        message.max_overhead = parse_share(overhead)
    hertz = values.pop("samples")
    if hertz is not None:
        message.sample_hz = parse_hertz(hertz)
    return message


def part_options(function: Function) -> Function:
    """--window --step --min-duration --redact: which part of a trace leaves it."""
    return _with(
        function,
        click.option("--window", help="Only this part, counted from the first event: 1s..1.5s."),
        click.option("--step", help="Only these training steps: 12, or 12..14."),
        click.option("--min-duration", help="Only events of at least this duration: 10us."),
        click.option(
            "--redact", help="Hide any of paths,values,names. For chrome, perfetto, perfetto-archive and bundle."
        ),
    )


def part_query(window: str | None, step: str | None, min_duration: str | None, redact: str | None) -> dict[str, Any]:
    """Fields of ExportRequest. Raises UsageError."""
    words = [word.strip() for word in redact.split(",")] if redact is not None else []
    if unknown := [word for word in words if word not in REDACTIONS]:
        raise UsageError(f"--redact knows {', '.join(REDACTIONS)}, not {unknown[0]!r}.")
    return {
        **_window_query(window, step),
        "min_duration_ns": 0 if min_duration is None else parse_duration_ns(min_duration),
        "redact": words,
    }


def _window_query(window: str | None, step: str | None) -> dict[str, Any]:
    if window is not None and step is not None:
        raise UsageError("--step and --window both choose a part; give only one of them.")
    from_ns, to_ns = (None, None) if window is None else parse_window_ns(window)
    first_step, last_step = (None, None) if step is None else parse_steps(step)
    return {"from_ns": from_ns, "to_ns": to_ns, "first_step": first_step, "last_step": last_step}


def window_options(function: Function) -> Function:
    """--step --window: which time of a trace a question looks at."""
    return _with(
        function,
        click.option("--step", help="Only these training steps: 207, or 200..210. `profctl steps` lists them."),
        click.option("--window", help="Only this part, counted from the first event: 1s..1.5s."),
    )


def within_options(function: Function) -> Function:
    """--step --window --thread: which part of a trace a question looks at."""
    thread = click.option("--thread", help="Only this thread, by name or id, and what it launched on devices.")
    return window_options(thread(function))


def window_query(values: dict[str, Any]) -> dict[str, Any]:
    """Arguments of a question for --step and --window among `values`. Raises UsageError."""
    return _window_query(values["window"], values["step"])


def within_query(values: dict[str, Any]) -> dict[str, Any]:
    """Arguments of a question for --step, --window and --thread among `values`. Raises UsageError."""
    return {**window_query(values), "thread": values["thread"]}


def within_words(values: dict[str, Any]) -> str:
    """--step, --window and --thread as they were given, for a command line that asks the next question."""
    given = ((name, values[name]) for name in ("step", "window", "thread"))
    return "".join(f" --{name} {shlex.quote(value)}" for name, value in given if value)


def warn_if_beyond(trace: dict[str, Any], part: dict[str, Any]) -> None:
    """Say so where the window begins after the last event of the trace: what is written then is empty."""
    start_ns, end_ns, from_ns = trace["start_ns"], trace["end_ns"], part["from_ns"]
    if from_ns is None or start_ns is None or end_ns is None or from_ns <= end_ns - start_ns:
        return
    lasts_ns = end_ns - start_ns
    say(
        f"The window begins {duration(from_ns)} after the trace's first event, and the trace ends after "
        f"{duration(lasts_ns)}: the window is empty. The whole trace is --window 0s..{seconds(lasts_ns)}"
    )
