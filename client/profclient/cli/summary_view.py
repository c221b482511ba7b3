"""The answer of a capture and the summary of a trace, for people.

The summary's JSON is described in docs/json.md; parts that a source cannot
know are null there and are left out here, or said in a sentence.
"""

from __future__ import annotations

from typing import Any

import click
from profproto.v1 import capture_pb2

from profclient.as_json import cost_json, state_name
from profclient.cli import capture_view
from profclient.cli.account_view import account_lines
from profclient.cli.backend import following
from profclient.cli.findings_view import AT_ONCE_EVENTS, leading_lines
from profclient.cli.output import counted, fitted, printable, stack_text, wrapped
from profclient.cli.units import ago, duration, signed_size, size
from profclient.connection import Daemon
from profclient.errors import ClientError
from profclient.traces import RemoteTraces

_NAMES_WIDTH = 13  # of the parts of a summary, before their text
READS_SHOWN = 0.9  # of values a step: fewer are a log line
FAILED_SHOWN = 12  # of many processes that ended alike, the first say it


def print_capture(daemon: Daemon, capture: capture_pb2.Capture) -> None:
    """The outcome of each process, with the summary of each trace."""
    traces = RemoteTraces(daemon)
    click.echo(f"capture {capture.id}: {state_name(capture.state)}")
    if capture.reason:
        click.echo(wrapped(printable(f"  asked for by the program: {capture.reason}"), hang=4))
    untraced = [target for target in capture.targets if not target.trace]
    for target in untraced[:FAILED_SHOWN]:
        click.echo(wrapped(printable(f"  {capture_view.target_line(target)}"), hang=4))
    if len(untraced) > FAILED_SHOWN:
        click.echo(f"  … and {len(untraced) - FAILED_SHOWN} more; --json has all")
    following = [_print_traced(traces, target) for target in capture.targets if target.trace]
    if following:
        first = next(target.trace for target in capture.targets if target.trace)
        commands = [*capture_view.of_ranks(capture), following[0], f"profctl export {first} -f chrome -o trace.json"]
        click.echo("\nnext: " + "\n      ".join(commands))


def _print_traced(traces: RemoteTraces, target: capture_pb2.TargetStatus) -> str:
    """The command that helps after it."""
    click.echo(f"\n{wrapped(printable(capture_view.target_line(target)), hang=2)}")
    summary: dict[str, Any] = {}
    try:
        summary = _print_with_findings(traces, target)
    except ClientError as error:
        # The trace is stored all the same: say so rather than fail the capture.
        click.echo(wrapped(f"  trace {target.trace} is stored; its summary is not available: {error}", hang=4))
    known = (capture_view.load_line(target.load), resident_text(summary))
    _line("process", "; ".join(text for text in known if text))
    if target.waterfall:
        _line("waterfall", capture_view.waterfall_line(target))
    return summary.get("next") or f"profctl top {target.trace}"


def _print_with_findings(traces: RemoteTraces, target: capture_pb2.TargetStatus) -> dict[str, Any]:
    """The summary of its trace behind the findings, which are asked for meanwhile; of a large one before them."""
    from concurrent.futures import ThreadPoolExecutor  # 6 ms that other commands do not need

    at_once = target.events <= AT_ONCE_EVENTS
    with ThreadPoolExecutor(1) as beside:
        asked = beside.submit(leading_lines, traces, target.trace) if at_once else None
        summary: dict[str, Any] = traces.ask("summary", target.trace).value()
        if target.HasField("cost"):  # which may be known better than when it was stored
            summary["cost"] = cost_json(target.cost)
        first = asked.result() if asked else []
    for name, text in first:
        _line(name, text)
    print_summary(summary, with_next=False)
    for name, text in [] if at_once else leading_lines(traces, target.trace):
        _line(name, text)
    return summary


def print_summary(summary: dict[str, Any], with_next: bool = True) -> None:
    """The summary of one trace."""
    trace = summary["trace"]
    _line("trace", f"{trace['id']}  {printable(trace['title'])[:100]}")
    _line("recorded", _recorded(summary))
    for name, text in account_lines(summary.get("accounting") or {}):
        _line(name, text)
    _line("where", _place(summary))
    if summary.get("clock_error_ns") is not None:
        _line("clock", f"times are within {duration(summary['clock_error_ns'])} of the host's")
    _line("steps", _steps(summary.get("steps") or {}))
    _line("slow steps", _slow_steps((summary.get("steps") or {}).get("outliers") or {}))
    for device in (summary.get("devices") or [])[:8]:
        _line(f"{device['device_type']} {device['device']}", _device(device))
    for use in (summary.get("memory") or [])[:8]:
        number = "" if use["device"] is None else f" {use['device']}"
        _line("memory", f"{use['device_type']}{number}  {_memory(use)}")
    _alive(summary.get("alive") or {})
    _line("host reads", _reads(summary.get("host_reads") or {}, bool(trace.get("gpu_events"))))
    _line("lost", _lost(summary.get("lost") or []))
    for name, key in (("not honoured", "not_honoured"), ("warning", "warnings")):
        for text in summary.get(key) or []:
            _line(name, printable(text))
    _line("cost", _cost(summary.get("cost") or {}))
    _top(summary.get("top") or [])
    _outside(summary.get("outside_operators") or [])
    if with_next:  # else the line says more of the process
        _line("process", resident_text(summary))
        click.echo(f"\nnext: {following(summary.get('next') or 'profctl top ' + trace['id'])}")


def resident_text(summary: dict[str, Any]) -> str:
    """How much memory the process had, and how much more by the end; empty where that is not known."""
    found = summary.get("resident") or {}
    grown, lasted = found.get("grown_bytes"), found.get("lasted_ns")
    if not found:
        return ""
    text = f"memory {size(found['end_bytes'])}"
    if grown is None or not lasted:
        return text
    rates = [f"{size(round(abs(grown) * 1e9 / lasted))}/s"]
    if found["grown_per_step_bytes"] is not None:
        rates.append(f"{size(abs(found['grown_per_step_bytes']))} a step")
    return f"{text}, {'shrank' if grown < 0 else 'grew'} {size(abs(grown))} ({', '.join(rates)}) in the window"


def _line(name: str, text: str) -> None:
    if text:
        click.echo(wrapped(f"  {name:<{_NAMES_WIDTH}} {text}", hang=_NAMES_WIDTH + 3))


def _recorded(summary: dict[str, Any]) -> str:
    trace, window = summary["trace"], summary.get("window") or {}
    recorded = window.get("window_ns") or window.get("recorded_ns")
    asked = window.get("asked_ns")
    text = counted(trace["events"], "event")
    if trace.get("gpu_events"):
        text += f" ({trace['gpu_events']:,} on a device)"
    text += f" in {duration(recorded)}" if recorded is not None else ""
    if asked:
        text += f" ({duration(asked)} asked)"
    elif window.get("asked_iterations"):
        text += f" ({counted(window['asked_iterations'], 'step')} asked)"
    return f"{text}, {ago(trace['created_ns'])}"


def _place(summary: dict[str, Any]) -> str:
    trace = summary["trace"]
    parts = [trace.get("host") or "", f"pid {trace['pid']}" if trace.get("pid") else "", f"source {trace['source']}"]
    if trace.get("rank") is not None:
        parts.append(f"rank {trace['rank']}")
    if summary.get("gpus"):
        parts.append("GPU " + ",".join(str(gpu) for gpu in summary["gpus"]))
    return printable("  ".join(part for part in parts if part))


def _steps(steps: dict[str, Any]) -> str:
    if not steps.get("n"):
        return printable(str(steps.get("message") or "none found"))
    spread = "  ".join(f"{name} {duration(steps[f'{name}_ns'])}" for name in ("p50", "p95", "max"))
    return f"{steps['n']:,}  {spread}  (from {printable(str(steps.get('from')))})"


def _slow_steps(told: dict[str, Any]) -> str:
    """The numbers of steps that took much longer than the others; `profctl steps` has their times."""
    if not told.get("n"):
        return ""
    named = told["numbers"]
    more = f" and {told['n'] - len(named):,} more" if told["n"] > len(named) else ""
    return (
        f"{told['n']:,} of more than {duration(told['above_ns'])}: {_runs(named)}{more}  (profctl steps, top --step N)"
    )


def _runs(numbers: list[int]) -> str:
    """`3, 200..210`: as --step takes them."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join("..".join(map(str, run)) for run in runs)


def _device(device: dict[str, Any]) -> str:
    share = device.get("busy_share")
    text = f"busy {duration(device.get('busy_ns'))}  idle {duration(device.get('idle_ns'))}"
    return text if share is None else f"{text}  ({share:.0%} busy)"


def _memory(use: dict[str, Any]) -> str:
    text = f"peak {size(use['peak_bytes'])}  allocated {size(use['allocated_bytes'])} in {use['allocations']:,}"
    if "freed_bytes" in use:  # older daemons do not say
        text += f"  freed {size(use['freed_bytes'])} in {use['frees']:,}  net {signed_size(use['net_bytes'])}"
    if use["out_of_memory"]:
        text += f"  out of memory {use['out_of_memory']:,} x"
    return text


def _alive(alive: dict[str, Any]) -> None:
    """Memory that was allocated in the window and is still there, by stack."""
    if not alive.get("blocks"):
        return
    held = counted(alive["blocks"], "block")
    _line("still alive", f"{size(alive['bytes'])} in {held} allocated in the window  (profctl memory)")
    for row in alive["rows"]:
        head = f"    {size(row['bytes']):>10}  {row['blocks']:>8,} x  {'grows  ' if row['grows'] else ''}"
        click.echo(head + fitted(printable(stack_text(row["stack"])), len(head), keep_end=True))


def _reads(reads: dict[str, Any], on_device: bool) -> str:
    """Values of tensors that the program asked for; a few in a window, such as of a log line, are no cause."""
    if not reads or (reads["per_step"] or 0) < READS_SHOWN:
        return ""
    often = f"{reads['per_step']:.2g} a step, {duration(reads['total_ns'])} in all"
    waits = "; each waits for its device" if on_device else ""  # on the CPU there is nothing to wait for
    return f"{reads['calls']:,} values of tensors (.item(), float(), if): {often}{waits}"


def _lost(lost: list[dict[str, Any]]) -> str:
    if not lost:
        return "nothing"
    return ", ".join(f"{loss['count']:,} in {loss['stage']} ({loss['reason']})" for loss in lost)


def _cost(cost: dict[str, Any]) -> str:
    how = cost.get("how") or "unknown"
    more = f": {cost['detail']}" if cost.get("detail") else ""
    if cost.get("step_ratio") is not None:
        return printable(f"steps took {cost['step_ratio']:.2f}x as long ({how}{more})")
    if cost.get("seconds") is not None:
        return printable(f"{duration(round(cost['seconds'] * 1e9))} ({how}{more})")
    return printable(f"{how}: {cost['detail']}" if cost.get("detail") else how)


def _outside(functions: list[dict[str, Any]]) -> None:
    """The work of the leading thread while no operator ran."""
    if functions:
        click.echo("  outside operators, by samples")
    for function in functions:
        head = f"    {duration(function['wall_ns']):>10}  "
        click.echo(head + fitted(printable(function["name"])[:90], len(head)))


def _top(rows: list[dict[str, Any]]) -> None:
    if not rows:
        return
    click.echo("  top by self time (wall)")
    for row in rows:
        own = max(row["self_cpu_time_total_ns"], row["self_device_time_total_ns"])
        head = f"    {duration(own):>10}  {row['count']:>8,} x  "
        click.echo(head + fitted(printable(row["name"])[:90], len(head)))
