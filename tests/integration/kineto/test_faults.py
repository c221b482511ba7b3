"""What a target may do instead of leaving a trace."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import stat
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from profd.capture.death import DeathWatch
from profd.gpu.lease_keeper import LeaseKeeper
from profd.limits import PROC_WAIT_LOOP_SECONDS, TRACE_FILE_BYTES_MAX
from profd.model.capture import Options, Reason, Recording, State
from profd.sources.kineto import recording, registry
from profd.sources.kineto import source as kineto_source
from profd.sources.kineto.source import TRACE_DIRECTORY, KinetoSource
from profd.targets import guarded
from profd.targets.process import Process
from profd.targets.table import ProcessTable

from tests.integration.kineto.conftest import session
from tests.support.kineto_client import (
    TRACING,
    Behaviour,
    KinetoClient,
    trace_bytes,
    trace_path,
    write_trace,
)
from tests.support.python_jobs import seen
from tests.support.waiting import eventually

OPTIONS = Options(duration_ns=100_000_000)
PATIENCE = 60.0


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """libkineto's fixed lead and run loop are not ours to test here."""
    monkeypatch.setattr(recording, "LEAD_NS", 50_000_000)
    monkeypatch.setattr(recording, "_SLACK_NS", 50_000_000)


@pytest.fixture
def client(source: KinetoSource, socket_dir: Path) -> Iterator[KinetoClient]:
    with KinetoClient(socket_dir) as client:
        yield client


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    folder = tmp_path / "traces"
    folder.mkdir()
    return folder


@pytest.fixture
def process(traces: Path) -> Process:
    found = seen(os.getpid())
    return replace(found, environ={"KINETO_USE_DAEMON": "1", TRACE_DIRECTORY: str(traces)}, stopped=False)


@asynccontextmanager
async def polling(client: KinetoClient, behaviour: Behaviour) -> AsyncIterator[None]:
    await client.ask()
    task = asyncio.create_task(client.run(behaviour))
    yield
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def record(
    source: KinetoSource, client: KinetoClient, process: Process, tmp_path: Path, behaviour: Behaviour
) -> Recording:
    begun, _ = session(tmp_path)
    async with polling(client, behaviour), asyncio.timeout(PATIENCE):
        return await source.record(process, OPTIONS, begun)


async def test_good_client(source, client, process, traces, tmp_path) -> None:
    result = await record(source, client, process, tmp_path, write_trace)
    assert result.state is State.DRAINING, result
    assert result.reason is Reason.NONE
    assert Path(result.files[0].path).read_bytes() == trace_bytes(client.configs[0])
    assert stat.S_IMODE(Path(result.files[0].path).stat().st_mode) == 0o600
    assert list(traces.iterdir()) == []
    assert source.offer(process).can
    assert source.plan(process, OPTIONS).trace_bytes is not None
    assert source.statistics()["leftovers"] == 0


async def test_a_process_that_misses_a_short_look_while_it_writes_is_waited_for(
    source, client, process, traces, tmp_path, monkeypatch
) -> None:
    """A busy host: it has not ended, and its file comes."""
    monkeypatch.setattr(guarded, "patience", guarded.Patience())

    def behaviour(client: KinetoClient, config: dict[str, str]) -> None:
        guarded.patience.waited(process.id.pid, process.uid, 0.0, PROC_WAIT_LOOP_SECONDS)
        asyncio.get_running_loop().call_later(0.15, write_trace, client, config)

    result = await record(source, client, process, tmp_path, behaviour)
    assert (result.state, result.reason) == (State.DRAINING, Reason.NONE), result
    assert Path(result.files[0].path).read_bytes() == trace_bytes(client.configs[0])


async def test_never_writes(source, client, process, traces, tmp_path) -> None:
    result = await record(source, client, process, tmp_path, lambda _client, _config: None)
    assert (result.state, result.reason) == (State.FAILED, Reason.NO_FILE)
    assert len(client.configs) == 3
    assert len({config["REQUEST_TRACE_ID"] for config in client.configs}) == 3
    assert len([text for text in result.warnings if "asked again" in text]) == 2


def _symlink(path: Path, secret: Path) -> None:
    path.symlink_to(secret)


def _hard_link(path: Path, secret: Path) -> None:
    os.link(secret, path)


def _fifo(path: Path, secret: Path) -> None:
    os.mkfifo(path)


def _folder(path: Path, secret: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("make", [_symlink, _hard_link, _fifo, _folder])
async def test_something_else_in_the_traces_place(source, client, process, traces, tmp_path, make) -> None:
    secret = tmp_path / "secret"
    secret.write_text("keep")
    result = await record(source, client, process, tmp_path, lambda _client, config: make(trace_path(config), secret))
    assert (result.state, result.reason) == (State.FAILED, Reason.FILE_REFUSED)
    assert str(trace_path(client.configs[0])) in result.message
    assert secret.read_text() == "keep"
    assert os.path.lexists(trace_path(client.configs[0]))
    assert list((tmp_path / "journal-c1").iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")
async def test_file_of_another_uid(source, client, process, traces, tmp_path) -> None:
    def behaviour(client: KinetoClient, config: dict[str, str]) -> None:
        part = traces / "x"
        part.write_bytes(trace_bytes(config))
        os.chown(part, 12345, 12345)
        part.rename(trace_path(config))

    result = await record(source, client, process, tmp_path, behaviour)
    assert result.reason is Reason.FILE_REFUSED
    assert "12345" in result.message
    assert trace_path(client.configs[0]).exists()


async def test_half_a_file(source, client, process, traces, tmp_path) -> None:
    def behaviour(_client: KinetoClient, config: dict[str, str]) -> None:
        final = trace_path(config)
        final.with_name(final.name + ".tmp").write_bytes(trace_bytes(config, events=100)[:5000])

    result = await record(source, client, process, tmp_path, behaviour)
    assert (result.state, result.reason) == (State.DRAINING, Reason.TRUNCATED)
    assert Path(result.files[0].path).stat().st_size == 5000
    assert list(traces.iterdir()) == []


async def test_file_without_an_end(source, client, process, traces, tmp_path) -> None:
    def behaviour(_client: KinetoClient, config: dict[str, str]) -> None:
        part = traces / "part"
        part.write_bytes(trace_bytes(config, events=100)[:5000])
        part.rename(trace_path(config))

    result = await record(source, client, process, tmp_path, behaviour)
    assert (result.state, result.reason) == (State.DRAINING, Reason.TRUNCATED)


async def test_a_file_of_32_gib_of_nothing(source, client, process, traces, tmp_path) -> None:
    """It costs its owner nothing, and the journal and what it was promised no more."""

    def behaviour(_client: KinetoClient, config: dict[str, str]) -> None:
        part = traces / "part"
        part.write_bytes(trace_bytes(config))
        os.truncate(part, TRACE_FILE_BYTES_MAX)
        part.rename(trace_path(config))

    result = await record(source, client, process, tmp_path, behaviour)
    found = Path(result.files[0].path).stat()
    assert (result.reason, found.st_size) == (Reason.TRUNCATED, TRACE_FILE_BYTES_MAX)
    assert found.st_blocks * 512 < 1 << 20


async def test_a_file_larger_than_is_taken_stays_where_it_is(source, client, process, traces, tmp_path) -> None:
    def behaviour(_client: KinetoClient, config: dict[str, str]) -> None:
        part = traces / "part"
        part.write_bytes(trace_bytes(config, events=100))
        part.rename(trace_path(config))

    begun, _ = session(tmp_path)
    begun.file_bytes_max = 5000
    async with polling(client, behaviour), asyncio.timeout(PATIENCE):
        result = await source.record(process, OPTIONS, begun)
    assert (result.state, result.reason) == (State.DRAINING, Reason.TRUNCATED)
    assert "more than 5000 bytes" in result.message
    whole = trace_bytes(client.configs[0], events=100)
    assert Path(result.files[0].path).read_bytes() == whole[:5000]
    assert trace_path(client.configs[0]).read_bytes() == whole
    assert source.statistics()["leftovers"] == 0


async def test_trace_of_another_request(source, client, process, traces, tmp_path) -> None:
    def behaviour(_client: KinetoClient, config: dict[str, str]) -> None:
        write_trace(_client, {**config, "REQUEST_TRACE_ID": "0" * 32})

    result = await record(source, client, process, tmp_path, behaviour)
    assert (result.state, result.reason) == (State.FAILED, Reason.FILE_REFUSED)
    assert list((tmp_path / "journal-c1").iterdir()) == []


async def test_missed_window_is_asked_for_again(source, client, process, traces, tmp_path) -> None:
    def behaviour(client: KinetoClient, config: dict[str, str]) -> None:
        if len(client.configs) > 1:
            return write_trace(client, config)
        part = traces / "part"
        part.write_bytes(trace_bytes(config, events=0, window_ms=0.1))
        part.rename(trace_path(config))
        return None

    result = await record(source, client, process, tmp_path, behaviour)
    assert result.state is State.DRAINING, result
    assert any("asked again" in text for text in result.warnings)
    assert Path(result.files[0].path).read_bytes() == trace_bytes(client.configs[1])


async def test_idle_process_is_no_missed_window(source, client, process, traces, tmp_path) -> None:
    def behaviour(client: KinetoClient, config: dict[str, str]) -> None:
        part = traces / "part"
        part.write_bytes(trace_bytes(config, events=0))
        part.rename(trace_path(config))

    result = await record(source, client, process, tmp_path, behaviour)
    assert result.state is State.DRAINING
    assert len(client.configs) == 1
    assert any("recorded nothing" in text for text in result.warnings)


async def test_another_profiler(source, client, process, traces, tmp_path) -> None:
    client.mask = TRACING
    begun, _ = session(tmp_path)
    async with polling(client, write_trace), asyncio.timeout(PATIENCE):
        assert source.offer(process).busy
        result = await source.record(process, OPTIONS, begun)
    assert (result.state, result.reason) == (State.BUSY, Reason.OTHER_PROFILER)
    assert client.configs == []  # it would have been silently lost


async def test_stop_before_the_config_is_read(source, client, process, traces, tmp_path) -> None:
    await client.ask()
    begun, reports = session(tmp_path)
    task = asyncio.create_task(source.record(process, OPTIONS, begun))
    await eventually(lambda: reports)
    async with asyncio.timeout(PATIENCE):
        assert reports[0][0] is State.ARMED
        assert reports[0][1].startswith("waiting for poll (≤ ")
        begun.stop.set()
        result = await task
    assert (result.state, result.reason) == (State.CANCELLED, Reason.CANCELLED_BY_USER)
    assert await client.ask() == ""


async def test_silence(source, client, process, traces, tmp_path, monkeypatch) -> None:
    await client.ask()
    monkeypatch.setattr(registry.Registered, "silent", lambda _self, _now: True)
    offer = source.offer(process)
    assert (offer.can, offer.why_code) == (False, Reason.TARGET_SILENT)
    begun, _ = session(tmp_path)
    result = await source.record(process, OPTIONS, begun)
    assert (result.state, result.reason) == (State.FAILED, Reason.TARGET_SILENT)


async def test_silence_after_the_config_was_read(source, client, process, traces, tmp_path, monkeypatch) -> None:
    """As when it hangs at its exit; the file it may still write is remembered."""

    def behaviour(_client: KinetoClient, _config: dict[str, str]) -> None:
        monkeypatch.setattr(registry.Registered, "silent", lambda _self, _now: True)

    result = await record(source, client, process, tmp_path, behaviour)
    assert (result.state, result.reason) == (State.FAILED, Reason.TARGET_SILENT)
    assert source.statistics()["leftovers"] == 1


async def test_directory_of_the_target_is_missing(source, client, process, traces, tmp_path) -> None:
    traces.rmdir()
    await client.ask()
    begun, _ = session(tmp_path)
    result = await source.record(process, OPTIONS, begun)
    assert (result.state, result.reason) == (State.FAILED, Reason.NO_FILE)
    assert str(traces) in result.message


@pytest.mark.parametrize("name", ["a=b", "a#b", "a\nPROFILE_MEMORY"])
async def test_directory_that_would_break_the_config(source, client, process, tmp_path, name) -> None:
    folder = tmp_path / name
    folder.mkdir()
    await client.ask()
    begun, _ = session(tmp_path)
    hostile = replace(process, environ={TRACE_DIRECTORY: str(folder)})
    result = await source.record(hostile, OPTIONS, begun)
    assert (result.state, result.reason) == (State.FAILED, Reason.FILE_REFUSED)
    assert source.statistics().get("configs", 0) == 0


async def test_never_registers(source, process, traces, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(kineto_source, "_EXPECTED_SECONDS", 0.0)
    monkeypatch.setattr(kineto_source, "_REGISTER_SECONDS", 0.0)
    offer = source.offer(process)
    assert not offer.can
    assert offer.fix
    begun, reports = session(tmp_path)
    result = await source.record(process, OPTIONS, begun)
    assert (result.state, result.reason) == (State.FAILED, Reason.TARGET_SILENT)
    assert "--source pyspy" in result.message
    assert "register" in reports[0][1]


async def test_stop_before_it_registers(source, process, traces, tmp_path) -> None:
    begun, _ = session(tmp_path)
    begun.stop.set()
    result = await source.record(process, OPTIONS, begun)
    assert (result.state, result.reason) == (State.CANCELLED, Reason.CANCELLED_BY_USER)


async def test_leftovers_of_an_earlier_daemon_are_swept(source, client, process, traces, tmp_path) -> None:
    """A daemon that died after handing out a config knows the name after its restart."""
    state = tmp_path / "second"
    state.mkdir()
    second = KinetoSource(None, abstract=False, state_dir=state, leases=LeaseKeeper(DeathWatch(ProcessTable())))
    ours, theirs = traces / "profd-ab_1.json.tmp", traces / "profd-cd_1.json.tmp"
    ours.touch()
    theirs.touch()
    gone = '{"pid": 4194303, "start_ticks": 1, "uid": %d, "directory": "%s", "name": "%s", "asked": 0.0}'
    (state / "kineto-leftovers.json").write_text(f"[{gone % (os.geteuid(), traces, 'profd-ab_1.json')}]")
    await second.open()
    await eventually(lambda: not ours.exists())
    await second.close()
    assert theirs.exists()


async def test_a_window_of_an_earlier_daemon_keeps_its_lease_until_the_process_is_idle(
    source, client, process, traces, tmp_path, monkeypatch
) -> None:
    state = tmp_path / "second"
    state.mkdir()
    asked = {"pid": process.id.pid, "start_ticks": process.id.start_ticks, "uid": os.geteuid(), "asked": time.time()}
    (state / "kineto-leftovers.json").write_text(json.dumps([{**asked, "directory": str(traces), "name": "profd-x_1"}]))
    leases = LeaseKeeper(DeathWatch(ProcessTable()))
    second = KinetoSource(None, abstract=False, state_dir=state, leases=leases)
    await second.open()
    try:
        held = leases.held(process.id)
        assert held is not None
        assert "libkineto, asked before profd was restarted" in str(held)
        second._clear_leases()  # it has not polled this daemon yet
        assert leases.held(process.id) is not None
        monkeypatch.setattr(second, "_idle_since", lambda process, since: True)
        second._clear_leases()
        assert leases.held(process.id) is None
    finally:
        await second.close()
        await leases.close()
