"""What is redacted is nowhere in the file, and the rest is as it was."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from profd.errors import BadInput
from profd.export.redact import PATHS, _Words

from tests.support.importing import import_trace
from tests.unit.profd.export.exported import exported

BASE = 1_700_000_000_000_000_000


def event(name: str, ts: int, dur: int, cat: str = "cpu_op", **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 7, "tid": 7, "ts": ts, "dur": dur, "args": args}


SECRET_PATH, SECRET_VALUE, SECRET_NAME = "/home/alice/model", "hunter2", "merger_with_acme"
TRACE = {
    "baseTimeNanoseconds": BASE,
    "traceName": f"{SECRET_PATH}/out.json",
    "command": f"train --token {SECRET_VALUE}",
    "traceEvents": [
        event("ProfilerStep#3", 0, 900, "user_annotation"),
        event("Optimizer.step#SGD.step", 800, 50, "user_annotation"),
        event(SECRET_NAME, 1, 90, "user_annotation"),
        event(f"{SECRET_PATH}/train.py(12): {SECRET_NAME}", 100, 90, "python_function", **{"Python id": 3}),
        event(
            "aten::load",
            200,
            50,
            **{  # type: ignore[arg-type]  # names that no parameter has
                "External id": 4,
                "Input Dims": [[2, 3]],
                "Concrete Inputs": [SECRET_VALUE, f"{SECRET_PATH}/w.pt"],
                "Call stack": f"{SECRET_PATH}/train.py(12): {SECRET_NAME};lib.py(3): f",
                "file": f"{SECRET_PATH}/w.pt",
                "token": SECRET_VALUE,
                "list": [f"{SECRET_PATH}/x", 1],
                "number": 1234567,
            },
        ),
        {"ph": "C", "name": "memory", "pid": 7, "tid": 7, "ts": 300, "args": {"used": 17}},
        {"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "args": {"name": f"python {SECRET_PATH}/train.py"}},
        {"ph": "M", "name": "other", "pid": 7, "tid": 0, "args": {"what": SECRET_VALUE}},
    ],
}


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("redact")
    (folder / "t.json").write_text(json.dumps(TRACE))
    title = f"python {SECRET_PATH}/train.py --token {SECRET_VALUE}"
    import_trace(folder / "t.json", folder / "t", title=title, host="node17", owner="alice", owner_uid=1000)
    return folder / "t"


def chrome(trace: Path, *redact: str) -> tuple[str, dict[str, Any]]:
    text = exported(trace, "chrome", redact=list(redact))[1].decode()
    return text, json.loads(text)


def named(document: dict[str, Any], **like: Any) -> list[dict[str, Any]]:
    return [found for found in document["traceEvents"] if found.items() >= like.items()]


def test_paths(trace: Path) -> None:
    text, document = chrome(trace, "paths")
    assert "alice" not in text
    assert SECRET_VALUE in text
    (function,) = named(document, cat="python_function")
    assert re.fullmatch(r"path-[0-9a-f]{12}\.py\(12\): " + SECRET_NAME, function["name"])
    (op,) = named(document, name="aten::load")
    assert op["args"]["Call stack"].startswith(function["name"])  # equal words stay equal
    assert op["args"]["Input Dims"] == [[2, 3]]
    assert op["args"]["number"] == 1234567
    assert re.fullmatch(r"path-[0-9a-f]{12}\.pt", op["args"]["file"])
    assert op["args"]["Concrete Inputs"][1] == op["args"]["file"]


def test_values(trace: Path) -> None:
    text, document = chrome(trace, "values")
    assert SECRET_VALUE not in text
    assert "1234567" not in text
    (op,) = named(document, name="aten::load")
    assert op["args"].keys() == {"External id", "Input Dims", "Call stack"}
    assert document.keys() == {"baseTimeNanoseconds", "traceEvents"}
    (counter,) = named(document, ph="C")
    assert counter["args"] == {"used": 17}


def test_names(trace: Path) -> None:
    text, document = chrome(trace, "names")
    assert SECRET_NAME not in text
    names = sorted(found["name"] for found in named(document, cat="user_annotation"))
    assert names[:2] == ["Optimizer.step#SGD.step", "ProfilerStep#3"]  # torch's own
    assert re.fullmatch(r"name-[0-9a-f]{12}", names[2])
    (function,) = named(document, cat="python_function")
    assert re.fullmatch(re.escape(f"{SECRET_PATH}/train.py") + r"\(12\): function-[0-9a-f]{12}", function["name"])
    assert named(document, name="aten::load")


@pytest.mark.parametrize("format_", ["chrome", "perfetto", "bundle"])
def test_nothing_is_left_of_all_of_it(trace: Path, format_: str) -> None:
    data = exported(trace, format_, redact=["paths", "values", "names"])[1]
    for secret in ("alice", "node17", SECRET_VALUE, SECRET_NAME):
        assert secret.encode() not in data


def test_what_the_process_says_of_threads_and_groups(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": [event("gloo:all_reduce", 0, 9)]}))
    thread = {"id": 7, "name": SECRET_PATH, "lasted_ns": 1, "ran_ns": 1, "queued_ns": 0}
    told: dict[str, Any] = {
        "run_times": {"threads": [thread], "names": {"7": f"reads {SECRET_PATH}"}},
        "versions": {"torch": f"{SECRET_PATH}/torch"},
        "remembered": {
            "calls": [
                {"group": group, "sequence": 1, "operation": "all_reduce", "elements": 4, "created_ns": 1}
                for group in ("0 data of acme", f"1 {SECRET_PATH}")
            ]
        },
    }
    import_trace(path, tmp_path / "t", **told)
    assert b"alice" not in exported(tmp_path / "t", "bundle", redact=["paths"])[1]
    assert b"acme" not in exported(tmp_path / "t", "bundle", redact=["values"])[1]


def test_hashes_are_new_every_time(trace: Path) -> None:
    assert chrome(trace, "names")[0] != chrome(trace, "names")[0]


def test_what_cannot_be_redacted(trace: Path) -> None:
    with pytest.raises(BadInput, match="chrome, perfetto, perfetto-archive, bundle"):
        exported(trace, "pprof", redact=["names"])
    with pytest.raises(BadInput, match="no redaction"):
        exported(trace, "chrome", redact=["everything"])


def test_redacted_and_compressed(trace: Path) -> None:
    packed = exported(trace, "chrome", redact=["names"], gzip=True)[1]
    assert SECRET_NAME.encode() not in gzip.decompress(packed)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("x" * 10**6, "x" * 10**6),  # a path could begin at each
        ("a.py" * 250_000, ""),
        ("a.py.b" * 150_000, ".b"),
        (".py", ".py"),
        ("in run.py:3 (a.so, b)", "in :3 (, b)"),
        ("see a/b.c, and c", "see , and c"),
    ],
)
def test_paths_in_names_of_any_length(text: str, left: str) -> None:
    shown = _Words(frozenset({PATHS})).plain(text)
    assert re.sub(r"path-[0-9a-f]{12}(\.\w+)?", "", shown) == left


def test_numbers_beyond_a_double_stay_json(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(
        json.dumps({"traceEvents": [event("aten::mm", 0, 9, **{"Input Dims": "@"})]}).replace('"@"', "[1e999]")
    )
    import_trace(path, tmp_path / "t")
    for redact in (("values",), ("paths",), ("values", "paths")):
        text = exported(tmp_path / "t", "chrome", redact=list(redact))[1].decode()
        (op,) = named(json.loads(text, parse_constant=pytest.fail), name="aten::mm")
        assert op["args"]["Input Dims"] == ["1e999"]
