"""Whoever empties the daemon's directory takes its addresses away: they are back soon, and said to have been gone."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from profproto.v1 import capture_pb2 as pb

from tests.integration.daemon.test_work import metrics_of
from tests.support.attached import Captures, attached, values, whole
from tests.support.daemon import RunningDaemon, running_daemon
from tests.support.kineto_client import KinetoClient
from tests.support.waiting import until

pytestmark = pytest.mark.slow


def remade(daemon: RunningDaemon) -> dict[str, float]:
    """By which socket."""
    sockets = ("grpc", "control", "agents", "kineto")
    found = metrics_of(daemon)
    return {name: found[f'profd_sockets_remade_total{{socket="{name}"}}'] for name in sockets}


def there(*paths: Path) -> bool:
    return all(path.exists() for path in paths)


def test_a_process_attaches_after_its_socket_was_removed(tmp_path: Path) -> None:
    with running_daemon("--metrics", "127.0.0.1:0") as daemon:
        agents = daemon.directory / "agent.sock"
        with attached(daemon, tmp_path) as before:
            agents.unlink()
            until(agents.exists, "the socket is there again")
            with attached(daemon, tmp_path) as after:
                # WHEN both are recorded, THEN who had attached before has lost nothing by it
                capture = Captures(daemon).record(before.pid, after.pid)
                assert [target.state for target in capture.targets] == [pb.STATE_STORED] * 2, capture
                assert all(whole(values(daemon, target.trace)) for target in capture.targets)
                before.check_results()
                after.check_results()
        assert remade(daemon) == {"grpc": 0, "control": 0, "agents": 1, "kineto": 0}
        assert "a socket was gone" in daemon.log


def test_every_socket_comes_back_with_its_directory(tmp_path: Path) -> None:
    # GIVEN sockets in a directory of their own, so that all of it can go
    with running_daemon("--metrics", "127.0.0.1:0") as daemon:
        sockets = [daemon.socket, daemon.control, daemon.directory / "agent.sock", daemon.kineto_dir / "dynolog"]
        captures = Captures(daemon)
        with attached(daemon, tmp_path) as job:
            # WHEN they are removed while it is recorded, with the streamer's way to the daemon
            capture = captures.recording(job.pid)
            for socket in sockets:
                socket.unlink()
            shutil.rmtree(daemon.kineto_dir)
            until(lambda: there(*sockets), "they are there again")
            job.counts_on()
            # THEN the call that watches it goes on, and a new client finds the daemon
            [target] = Captures(daemon, apart=True).stop(capture).targets
            assert target.state == pb.STATE_STORED, target.message
            assert whole(values(daemon, target.trace))
            job.check_results()
        until(lambda: set(remade(daemon).values()) == {1}, "each has been made once")


async def test_kinetos_clients_are_answered_at_the_new_socket() -> None:
    with running_daemon("--metrics", "127.0.0.1:0") as daemon:
        file = daemon.kineto_dir / "dynolog"
        with KinetoClient(daemon.kineto_dir) as client:
            await client.ask()
            file.unlink()
            await asyncio.to_thread(until, file.exists, "the socket is there again")
            await client.ask()


def test_what_somebody_else_has_put_there_is_left_alone(tmp_path: Path) -> None:
    with running_daemon() as daemon:
        agents = daemon.directory / "agent.sock"
        agents.unlink()
        agents.mkdir()
        until(lambda: "cannot be made anew" in daemon.log, "it says so")
        agents.rmdir()
        with attached(daemon, tmp_path) as job:
            assert Captures(daemon).record(job.pid).targets[0].state == pb.STATE_STORED
