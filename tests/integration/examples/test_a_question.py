"""docs/adding-a-question.md, done: its patch is applied to a copy of the tree, and the new question is asked there."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from profproto.v1 import query_pb2, query_pb2_grpc

from tests.integration.daemon.test_work import SECONDS, import_trace
from tests.support.daemon import RunningDaemon, running_daemon
from tests.support.patched import PROFCTL, Patched, patched, shown

pytestmark = pytest.mark.slow

FILES_MAX = 5  # function, row, view, and two of docs


@pytest.fixture(scope="module")
def patch(tmp_path_factory: pytest.TempPathFactory) -> Patched:
    return patched("a-question", tmp_path_factory.mktemp("tree"))


@pytest.fixture(scope="module")
def daemon(patch: Patched) -> Iterator[RunningDaemon]:
    with running_daemon(environ=patch.environ) as daemon:
        import_trace(daemon)
        yield daemon


def test_it_touches_few_files_and_none_that_is_generated(patch: Patched) -> None:
    files = [file for file in patch.files if not file.startswith("tests/")]
    assert len(files) <= FILES_MAX
    assert {Path(file).parts[0] for file in files} == {"daemon", "client", "docs", "CHANGELOG.md"}
    assert not [file for file in files if "_pb2" in file or file.startswith("protos/")]


def test_it_is_answered_by_profctl(daemon: RunningDaemon, patch: Patched) -> None:
    def profctl(*arguments: str, code: int = 0) -> str:
        return patch.run(*PROFCTL, *arguments, code=code, environ=daemon.environ)

    assert "\n  slowest   The events that took longest.\n" in profctl("--help")
    lines = [json.loads(line) for line in profctl("slowest", "--limit", "2", "--json").splitlines()]
    assert lines == [{"row": row, "name": f"op{row}", "duration_ns": 5000} for row in (0, 1)]
    assert profctl("slowest").splitlines()[1].split() == ["0", "5.00", "us", "op0"]
    assert "1<=x<=1000" in profctl("slowest", "--limit", "0", code=2)


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


def test_it_is_answered_without_a_daemon(patch: Patched, tmp_path: Path) -> None:
    events = [{"ph": "X", "name": f"e{n}", "pid": 1, "tid": 1, "ts": 10 * n, "dur": n} for n in range(5)]
    file, store = tmp_path / "t.json", tmp_path / "state"
    file.write_text(json.dumps({"traceEvents": events}))
    offline = (sys.executable, "-m", "profd.offline")
    patch.run(*offline, "import", "--store", str(store), given=json.dumps({"path": str(file)}))
    said = patch.run(*offline, "slowest", "--store", str(store), given='{"limit": 1}')
    assert json.loads(said) == {"row": 4, "name": "e4", "duration_ns": 4000}
    assert json.loads(patch.run(*PROFCTL, "--store", str(store), "slowest", "--limit", "1", "--json")) == json.loads(
        said
    )
    error = patch.run(*offline, "slowest", "--store", str(store), given='{"limit": 0}', code=2)
    assert "limit must be a number from 1 to 1000, not 0" in error


def test_its_page_shows_lines_of_it(patch: Patched) -> None:
    assert shown(patch, "adding-a-question.md") == []
