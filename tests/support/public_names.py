"""Names that others use, as somebody outside finds them: by running things and asking, by no module of ours.

`python -m tests.support.public_names` writes those of today to tests/corpus/names.json, after a change that adds some.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import importlib.util
import io
import json
import re
import subprocess
import sys
import tomllib
import urllib.request
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pool

from tests.support.daemon import RunningDaemon, running_daemon

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "tests" / "corpus" / "names.json"
MODULES = ("profd.offline", "profd.main", "profclient.streamer", "profd.query", "profclient", "profproto.v1")
"""That are run with `python -m` by others, or imported: in notebooks, in jobs, by other clients."""
PACKAGES = ("capture", "host", "ingest", "trace")  # of the contract

_OPTION = re.compile(r"(?<![\w-])(--?[a-zA-Z][\w-]*)")
_VERB = re.compile(r"^  ([a-z][\w-]*)", re.MULTILINE)
_VARIABLE = re.compile(r"PROFD_[A-Z]+(?:_[A-Z]+)*(?!_)\b")
_METRIC = re.compile(r"^# TYPE (\w+)", re.MULTILINE)


def found() -> dict[str, Any]:
    """All of them, by what they are names of; each a sorted list, or lists by name."""
    with running_daemon("--metrics", "127.0.0.1:0") as daemon:
        return {
            "console scripts": sorted(_scripts()),
            "modules": [name for name in MODULES if importlib.util.find_spec(name) is not None],
            "profclient": sorted(__import__("profclient").__all__),
            "profd.query": sorted(__import__("profd.query", fromlist=["query"]).__all__),
            "profctl": dict(sorted(_profctl())),
            "profd": sorted(_options(_help("profd.main"))),
            "profd.offline": sorted(_verbs_of_offline()),
            "configuration": _documented_keys(),
            "variables": sorted(_variables()),
            "metrics": sorted(_metrics(daemon)),
            "sockets and files": sorted(_files(daemon)),
            "contract": dict(sorted(_contract())),
        }


def recorded() -> dict[str, Any]:
    """Those of before."""
    names: dict[str, Any] = json.loads(RECORDED.read_text())
    return names


def gone(before: Any, now: Any, where: str = "") -> list[str]:
    """What was there and is not any more."""
    if isinstance(before, dict):
        return (
            [each for key, value in before.items() for each in gone(value, now.get(key), f"{where} {key}".strip())]
            if isinstance(now, dict)
            else [where]
        )
    if isinstance(before, list):
        return [f"{where}: {name}" for name in before if name not in (now or [])]
    return [] if before == now else [f"{where}: {before!r} is {now!r}"]


def _scripts() -> Iterator[str]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        yield from tomllib.load(file)["project"]["scripts"]


def _help(module: str) -> str:
    done = subprocess.run([sys.executable, "-m", module, "--help"], capture_output=True, text=True, check=True)
    return done.stdout


def _options(text: str) -> set[str]:
    return set(_OPTION.findall(text))


def _profctl() -> Iterator[tuple[str, list[str]]]:
    """Each verb, also one of a group, with its options."""
    text = _asked()
    yield "", sorted(_options(text.partition("\nOptions:")[2]))
    for verb in _commands(text):
        text = _asked(verb)
        for inner in _commands(text):
            yield f"{verb} {inner}", sorted(_declared(_asked(verb, inner)))
        yield verb, sorted(_declared(text))


def _commands(text: str) -> list[str]:
    return _VERB.findall(text.partition("\nCommands:")[2])


def _declared(text: str) -> set[str]:
    lines = text.partition("\nOptions:")[2].partition("\nCommands:")[0].splitlines()
    return {option for line in lines if line.startswith("  -") for option in _options(line.lstrip().partition("  ")[0])}


def _asked(*verbs: str) -> str:
    [script] = importlib.metadata.entry_points(group="console_scripts", name="profctl")
    out = io.StringIO()
    argv = sys.argv
    sys.argv = ["profctl", *verbs, "--help"]
    try:
        with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            script.load()()
    finally:
        sys.argv = argv
    return out.getvalue()


def _verbs_of_offline() -> list[str]:
    found = re.search(r"\{([\w,-]+)\}", _help("profd.offline"))
    assert found is not None
    return found[1].split(",")


def _documented_keys() -> dict[str, str]:
    """Keys of the settings file, and the variable that says the same."""
    text = (ROOT / "docs" / "configuration.md").read_text()
    rows = re.findall(r"^\| `(?:\[(\w+)\] )?(\w+)` \| [^|]* \| `(PROFD_\w+)` \|", text, re.MULTILINE)
    return {f"{table}.{key}".lstrip("."): variable for table, key, variable in rows}


def _variables() -> set[str]:
    """That are spelled in what is installed, native code included: of the environment, and fields for journald.

    Those of settings are made of their keys, and stand under `configuration`.
    """
    names: set[str] = set()
    for folder in ("client/profclient", "daemon/profd", "native"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".h", ".c", ".cc", ".cpp"):
                names |= set(_VARIABLE.findall(path.read_text(errors="replace")))
    return names


def _metrics(daemon: RunningDaemon) -> list[str]:
    where = re.findall(r"metrics\W+(127\.0\.0\.1:\d+)", daemon.log)[-1]
    with urllib.request.urlopen(f"http://{where}/metrics", timeout=60) as answer:
        return _METRIC.findall(answer.read().decode())


def _files(daemon: RunningDaemon) -> Iterator[str]:
    """Sockets beside the daemon's, and what its state directory begins with."""
    for path in daemon.directory.rglob("*"):
        if path.is_socket() and path.name != "notify":
            yield str(path.relative_to(daemon.directory))
    for path in daemon.state_dir.iterdir():
        yield f"state/{path.name}"


def _contract() -> Iterator[tuple[str, Any]]:
    """Services with their methods; messages and enums with their numbers."""
    for name in PACKAGES:
        importlib.import_module(f"profproto.v1.{name}_pb2")
        file = descriptor_pool.Default().FindFileByName(f"profproto/v1/{name}.proto")
        for service in file.services_by_name.values():
            yield service.full_name, sorted(method.name for method in service.methods)
        for message in file.message_types_by_name.values():
            yield from _message(message)
        for enum in file.enum_types_by_name.values():
            yield enum.full_name, {value.name: value.number for value in enum.values}


def _message(message: Any) -> Iterator[tuple[str, Any]]:
    yield message.full_name, {field.name: [field.number, field.type] for field in message.fields}
    for enum in message.enum_types:
        yield enum.full_name, {value.name: value.number for value in enum.values}
    for inner in message.nested_types:
        yield from _message(inner)


if __name__ == "__main__":
    RECORDED.write_text(json.dumps(found(), indent=1) + "\n")
