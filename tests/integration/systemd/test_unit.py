"""The unit as systemd runs it: every confinement that it names, around a daemon whose every source is used."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.ports import free_port
from tests.support.systemd_host import bounds_children, systemd_host

pytestmark = pytest.mark.slow

SECONDS = 500.0


def test_everything_works_under_the_unit() -> None:
    port = free_port()
    with systemd_host(metrics=f"127.0.0.1:{port}") as host:
        started = host.run("systemctl", "start", "profd")
        assert started.returncode == 0, (started.stderr, host.log)
        inside = str(Path(__file__).with_name("inside.py"))
        # Its own cache would be written to the checkout, where another run may be at it.
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", inside]
        done = host.run("env", f"METRICS_PORT={port}", *command, seconds=SECONDS)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{host.log}"
        assert host.run("systemctl", "stop", "profd").returncode == 0
        assert '"level": "error"' not in host.log, host.log
        assert "ENOSYS" not in host.log, host.log


# Of a child that waits for a file system, which no signal ends: systemd is told to end the daemon alone.
STAYS = """
printf '[Service]\nKillMode=process\n' > "$1/units/profd.service.d/stays.conf"
systemctl daemon-reload && systemctl start profd || exit 1
service=/sys/fs/cgroup/system.slice/profd.service
mkdir -p $service/samplers/77
sleep 1000 & echo $! > $service/samplers/77/cgroup.procs || exit 2
kill -9 $(systemctl show -p MainPID --value profd)
until [ "$(systemctl show -p NRestarts --value profd)" = 1 ] && systemctl is-active -q profd; do
    systemctl is-failed -q profd && exit 3
    sleep 0.1
done
grep -q . $service/samplers/77/cgroup.procs || exit 4
cat $service/cgroup.subtree_control
"""


@pytest.mark.skipif(not bounds_children(), reason="cgroups have no limits of memory and tasks here (cgroup v1)")
def test_a_child_that_stays_keeps_no_daemon_from_starting() -> None:
    with systemd_host() as host:
        done = host.run("sh", "-c", STAYS, "sh", str(host.folder))
        assert done.returncode == 0, (done.returncode, done.stderr, host.log)
        assert set(done.stdout.split()) >= {"memory", "pids"}  # and the new one has groups again
