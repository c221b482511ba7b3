"""`profctl gpu`: Print what the GPUs did: streams, idle time, launches, copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from profclient.cli.backend import traces
from profclient.cli.captured_view import place, say_of_traces
from profclient.cli.options import json_option
from profclient.cli.output import counted, emit_json, printable, say, table
from profclient.cli.units import duration, size

ROWS_SHOWN = 32  # of streams, and of copies


@click.command()
@click.argument("trace", default="")
@json_option
def gpu(trace: str, as_json: bool) -> None:
    """Print what the GPUs of a trace did: streams, idle time, launches, copies.

    BUSY is a share of the recorded time; --json has the time itself. OVERLAP is time in which two
    streams or more worked. An idle device was WAITING while launched work had not begun; otherwise
    it was UNFED: the host was late. DELAY (median and P95) is the time from a launch to the begin of
    its work. QUEUE is the largest number of launches whose work had not begun. COPY ALONE is copying
    with no kernel beside it. TRACE may be a capture: each row then begins with its rank.
    """
    with traces() as source:
        answer = source.ask("gpu", trace).value()
    if as_json:
        emit_json(answer)
        return
    if "capture" in answer:
        say_of_traces(answer)
    if answer["devices"]:
        _print(answer)
    else:
        say(str(answer["message"]))
    _section("METRIC", _METRIC, [_metric(row) for row in answer["metrics"]])


def _print(answer: dict[str, Any]) -> None:
    click.echo(f"{duration(answer['window_ns'])} recorded\n")
    _section("DEVICE", _DEVICE, [_device(row) for row in answer["devices"]])
    _section("STREAM", _STREAM, [_stream(row) for row in answer["streams"][:ROWS_SHOWN]])
    _say_more(answer, "streams", "stream")
    _section("COPY", _COPY, [_copies(row) for row in answer["copies"][:ROWS_SHOWN]])
    _say_more(answer, "copies", "name")
    _section("OPERATOR", _OP, [_op(row) for row in answer["ops"]])
    if answer.get("ops_message"):
        say(answer["ops_message"])
    click.echo(f"{_links(answer['links'])}\n")


def _say_more(answer: dict[str, Any], key: str, word: str) -> None:
    more = max(len(answer[key]) - ROWS_SHOWN, 0) + answer.get(f"{key}_left_out", 0)  # an older daemon says less
    if more:
        say(f"… and {counted(more, word)} more; --json has the first 1024.")


_DEVICE = ("BUSY", "OVERLAP", "WAITING", "UNFED", "COPY ALONE", "DELAY", "P95")
_STREAM = ("KERNELS", "COPIES", "FILLS", "BUSY", "OVERLAP", "QUEUE", "DELAY", "P95")
_COPY = ("COUNT", "BYTES", "DURATION", "PER SECOND")
_METRIC = ("MEAN", "MIN", "MAX")
_OP = ("CALLS", "DEVICE SELF", "DEVICE TOTAL")


def _section(name: str, numbers: Sequence[str], rows: list[list[str]]) -> None:
    if rows:
        table([name, *numbers], rows, right=numbers, wide=[name])
        click.echo()


def _device(row: dict[str, Any]) -> list[str]:
    times = ("overlap_ns", "idle_waiting_ns", "idle_empty_ns", "exposed_copy_ns")
    return [
        _place(row),
        _percent(row["busy_share"]),
        *(duration(row[key]) for key in times),
        *_delays(row),
    ]


def _stream(row: dict[str, Any]) -> list[str]:
    stream = "-" if row["stream"] is None else row["stream"]
    return [
        f"{_place(row)} #{stream}",
        *(f"{row[key]:,}" if row[key] else "-" for key in ("kernels", "copies", "fills")),
        _percent(row["busy_share"]),
        duration(row["overlap_ns"]),
        f"{row['queue_max']:,}",
        *_delays(row),
    ]


def _copies(row: dict[str, Any]) -> list[str]:
    speed = row["bytes_per_second"]
    return [
        f"{_place(row)} {row['name']}",
        f"{row['count']:,}",
        size(row["bytes"]),
        duration(row["duration_ns"]),
        "-" if speed is None else f"{size(int(speed))}/s",
    ]


def _metric(row: dict[str, Any]) -> list[str]:
    name = str(row["name"])
    return [
        printable(f"{_origin(row)}{row['track']} {name}"),
        *(_in_unit(name, row[key]) for key in ("mean", "min", "max")),
    ]


def _in_unit(name: str, value: float) -> str:
    """The last words of a metric's name are its unit, as in Prometheus."""
    if name.endswith("_bytes_per_second"):
        return f"{size(round(value))}/s"
    if name.endswith("_bytes"):
        return size(round(value))
    if name.endswith("_hertz"):
        return f"{value / 1e6:,.0f} MHz"
    if name.endswith("_ratio"):
        return _percent(value)
    return f"{value:,.1f} W" if name.endswith("_watts") else f"{value:,.1f}"


def _op(row: dict[str, Any]) -> list[str]:
    times = (row["self_device_time_total_ns"], row["device_time_total_ns"])
    return [_origin(row) + row["name"], f"{row['count']:,}", *map(duration, times)]


def _links(links: dict[str, Any]) -> str:
    share = links["share"]
    if share is None:
        return f"{counted(links['device_events'], 'device event')}; the trace does not say what launched them"
    text = f"{_percent_exact(share)} of {counted(links['stated'], 'device event')} found the call that launched them"
    unknown = links["device_events"] - links["stated"]
    return text + (f"; the launches of {unknown:,} more are not in the trace" if unknown else "")


def _percent_exact(share: float) -> str:
    """Two digits, and never 100 % of what is less."""
    return "100%" if share == 1 else f"{min(share, 0.9999):.2%}"


def _delays(row: dict[str, Any]) -> tuple[str, str]:
    return duration(row["launch_delay_p50_ns"]), duration(row["launch_delay_p95_ns"])


def _place(row: dict[str, Any]) -> str:
    number = "" if row["device"] is None else f" {row['device']}"
    return printable(f"{_origin(row)}{row['device_type']}{number}")


def _origin(row: dict[str, Any]) -> str:
    """The trace of a row, in an answer about a capture."""
    return f"{place(row)} " if "trace" in row else ""


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"
