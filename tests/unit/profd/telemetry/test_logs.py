"""Log lines: one per record, fields kept, control characters harmless."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
from profd.telemetry import logs


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def root_logger() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.getLogger("grpc").handlers[:] = []
    logging.getLogger("grpc").propagate = True


def logged(stream: io.StringIO, form: str = "auto") -> str:
    logs.setup("info", form, stream)
    log = logging.getLogger("profd.test")
    log.debug("not this")
    log.warning("what %s", "happened\x1b[2J\n", extra={"pid": 7, "title": "a\nb", "path": {"x": object()}.keys()})
    return stream.getvalue()


def test_json_where_nobody_looks() -> None:
    (line,) = logged(io.StringIO()).splitlines()
    entry = json.loads(line)
    assert (entry["level"], entry["logger"]) == ("warning", "profd.test")
    assert entry["message"] == "what happened\x1b[2J\n"
    assert (entry["pid"], entry["title"]) == (7, "a\nb")
    assert entry["time"].endswith("Z")


def test_text_on_a_terminal() -> None:
    (line,) = logged(Terminal()).splitlines()
    assert "\x1b" not in line
    assert "warning profd.test  what happened\\x1b[2J\\n  pid=7  title=a\\nb" in line


@pytest.mark.parametrize(("form", "json_lines"), [("json", True), ("text", False)])
def test_form_can_be_forced(form: str, json_lines: bool) -> None:
    assert logged(Terminal() if json_lines else io.StringIO(), form).startswith("{") == json_lines


def test_what_clients_make_grpc_say_is_a_line_now_and_then() -> None:
    stream = io.StringIO()
    logs.setup("info", "json", stream)
    for number in range(100):
        try:
            raise RuntimeError("a client went away")
        except RuntimeError:
            logging.getLogger("grpc._cython.cygrpc").exception("raised in core %s", number)
    (line,) = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert (line["logger"], line["says"]) == ("profd.rpc", "raised in core 0")
    assert "a client went away" in line["exception"]


def test_tracebacks_are_kept() -> None:
    stream = io.StringIO()
    logs.setup("info", "json", stream)
    try:
        raise ValueError("a bug")
    except ValueError:
        logging.getLogger("x").exception("failed")
    assert "ValueError: a bug" in json.loads(stream.getvalue())["exception"]
