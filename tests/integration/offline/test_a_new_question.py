"""docs/adding-a-question.md, done: its patch is applied to a copy of the tree, and the new question is asked there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import profd
import pytest
from profd import _engine, _host, _scan
from profproto.v1 import query_pb2, query_pb2_grpc

from tests.integration.daemon.test_work import SECONDS, import_trace
from tests.support.daemon import RunningDaemon, running_daemon

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
PATCH = ROOT / "docs" / "examples" / "a-question.patch"
FILES_MAX = 5  # function, row, view, and two of docs
PACKAGES = ("daemon/profd", "client/profclient", "protos/profproto")
# An editable install finds the modules of this tree before PYTHONPATH is asked.
ALONE = "import sys\nsys.meta_path[:] = [one for one in sys.meta_path if 'editable' not in type(one).__module__]\n"
PROFCTL = (sys.executable, "-c", "from profclient.cli import main; main()")


@pytest.fixture(scope="module")
def environ(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What makes Python run the copy, with the patch."""
    tree = tmp_path_factory.mktemp("tree")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tree / package, ignore=shutil.ignore_patterns("__pycache__"))
    for native in (_engine, _host, _scan):
        shutil.copy(str(native.__file__), tree / "daemon" / "profd")
    for file in ("docs/json.md", "CHANGELOG.md"):
        (tree / file).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / file, tree / file)
    # Without context behind it, the line of the changelog goes in whatever others have been written since.
    subprocess.run(
        ["git", "apply", "--unidiff-zero", str(PATCH)], cwd=tree, check=True, env={**os.environ, "GIT_DIR": ""}
    )
    (tree / "sitecustomize.py").write_text(ALONE)
    paths = [tree, *(tree / Path(package).parent for package in PACKAGES)]
    return {"PYTHONPATH": os.pathsep.join(map(str, paths))}


@pytest.fixture(scope="module")
def daemon(environ: dict[str, str]) -> Iterator[RunningDaemon]:
    with running_daemon(environ=environ) as daemon:
        import_trace(daemon)
        yield daemon


def run(environ: dict[str, str], *command: str, given: str = "", code: int = 0) -> Any:
    done = subprocess.run(
        [*command], env={**os.environ, **environ}, input=given, capture_output=True, text=True, timeout=SECONDS
    )
    assert done.returncode == code, done.stderr
    return done.stderr if code else done.stdout


def test_it_touches_few_files_and_none_that_is_generated() -> None:
    files = re.findall(r"^\+\+\+ b/(.*)$", PATCH.read_text(), re.MULTILINE)
    assert len(files) <= FILES_MAX
    assert {Path(file).parts[0] for file in files} == {"daemon", "client", "docs", "CHANGELOG.md"}
    assert not [file for file in files if "_pb2" in file or file.startswith("protos/")]


def test_the_copy_runs(environ: dict[str, str]) -> None:
    script = "import profd.questions.table as table, profclient; print(table.__file__, profclient.__file__)"
    tree = environ["PYTHONPATH"].partition(os.pathsep)[0]
    assert all(path.startswith(tree) for path in run(environ, sys.executable, "-c", script).split())
    assert not str(profd.__path__[0]).startswith(tree)


def test_it_is_answered_by_profctl(daemon: RunningDaemon, environ: dict[str, str]) -> None:
    environ = {**daemon.environ, **environ}
    assert "\n  slowest   The events that took longest.\n" in run(environ, *PROFCTL, "--help")
    lines = [json.loads(line) for line in run(environ, *PROFCTL, "slowest", "--limit", "2", "--json").splitlines()]
    assert lines == [{"row": row, "name": f"op{row}", "duration_ns": 5000} for row in (0, 1)]
    assert run(environ, *PROFCTL, "slowest").splitlines()[1].split() == ["0", "5.00", "us", "op0"]
    assert "1<=x<=1000" in run(environ, *PROFCTL, "slowest", "--limit", "0", code=2)


def test_it_is_answered_by_rpc_within_its_limit(daemon: RunningDaemon) -> None:
    """By a client that knows nothing of it."""
    stub = daemon.stub(query_pb2_grpc.QueryServiceStub)
    asked: dict[str, Any] = {"metadata": daemon.metadata(), "timeout": SECONDS}
    rows = {row.name: row for row in stub.ListQuestions(query_pb2.ListQuestionsRequest(), **asked).questions}
    (limit,) = rows["slowest"].arguments
    assert (limit.name, limit.least, limit.most, limit.default.string_value) == ("limit", 1, 1000, "10")
    request = query_pb2.QueryRequest(name="slowest")
    parts = list(stub.Query(request, **asked))
    assert parts[0].header.kind == query_pb2.ANSWER_ROWS
    assert b"".join(part.data for part in parts[1:]).count(b"\n") == 10
    request.arguments.update({"limit": "1001"})
    with pytest.raises(grpc.RpcError) as refused:
        list(stub.Query(request, **asked))
    assert refused.value.details() == "limit must be a number from 1 to 1000, not 1001"


def test_it_is_answered_without_a_daemon(environ: dict[str, str], tmp_path: Path) -> None:
    events = [{"ph": "X", "name": f"e{n}", "pid": 1, "tid": 1, "ts": 10 * n, "dur": n} for n in range(5)]
    file, store = tmp_path / "t.json", tmp_path / "state"
    file.write_text(json.dumps({"traceEvents": events}))
    offline = (sys.executable, "-m", "profd.offline")
    run(environ, *offline, "import", "--store", str(store), given=json.dumps({"path": str(file)}))
    said = run(environ, *offline, "slowest", "--store", str(store), given='{"limit": 1}')
    assert json.loads(said) == {"row": 4, "name": "e4", "duration_ns": 4000}
    assert json.loads(run(environ, *PROFCTL, "--store", str(store), "slowest", "--limit", "1", "--json")) == json.loads(
        said
    )
    error = run(environ, *offline, "slowest", "--store", str(store), given='{"limit": 0}', code=2)
    assert "limit must be a number from 1 to 1000, not 0" in error


def test_it_is_documented(environ: dict[str, str]) -> None:
    tree = Path(environ["PYTHONPATH"].partition(os.pathsep)[0])
    assert "## `profctl slowest TRACE --json`" in (tree / "docs" / "json.md").read_text()
    shown = (ROOT / "docs" / "adding-a-question.md").read_text()
    for block in re.findall(r"```python\n(.*?)```", shown, re.DOTALL):
        for line in block.splitlines():
            assert f"+{line.strip()}" in re.sub(r"^\+ +", "+", PATCH.read_text(), flags=re.MULTILINE), line
