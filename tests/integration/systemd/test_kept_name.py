"""Kineto's abstract name under the unit: from the first start to the stop nobody else has it, however a daemon ends."""

from __future__ import annotations

from typing import Final

import pytest
from profd.kernel import passed
from profd.sources.kineto.wire import CLIENT_PREFIX, DAEMON_NAME

from tests.support.systemd_host import systemd_host

pytestmark = pytest.mark.slow

SECONDS: Final = 300.0
ALICE: Final = 3261

# A registration is answered however old it is. argv: "bind" or "ask"
CLIENT: Final = f"""
import socket, struct, sys
name = b"\\0{DAEMON_NAME}\\0"
mine = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
if sys.argv[1] == "bind":
    try:
        mine.bind(name)
        print("taken")
    except OSError as error:
        print(error.strerror)
else:
    mine.bind(b"\\0{CLIENT_PREFIX}-kept\\0")
    mine.sendto(struct.pack("=Q32siiq", 16, b"ctxt", 0, 1, 0), name)
    print("sent", flush=True)
    answer = mine.recv(100)
    print(*struct.unpack_from("=i", answer, 40), "of us", flush=True)
"""

# $1: a folder, $2: the client, $3: the uid. No daemon begins without the file `go`.
SCRIPT: Final = """
as_alice() { setpriv --reuid "$3" --regid "$3" --clear-groups /usr/bin/python3 -I -c "$2" "$4"; }
state() { systemctl show -p "$1" --value profd; }
waits='/bin/sh -c "until [ -e /run/go ]; do sleep 0.1; done"'
printf '[Service]\nRestartSec=100ms\nTimeoutStartSec=300\nExecStartPre=%s\n' "$waits" \
    > "$1/units/profd.service.d/waits.conf"
touch /run/go
systemctl daemon-reload && systemctl start profd || exit 1

rm /run/go
kill -9 "$(state MainPID)"
until [ "$(state NRestarts) $(state SubState)" = "1 start-pre" ]; do sleep 0.1; done
echo "killed: $(as_alice "$@" bind)"
as_alice "$@" ask > "$1/asked" & client=$!
until grep -q sent "$1/asked" || ! kill -0 $client; do sleep 0.1; done
touch /run/go
wait $client
echo "asked: $(tail -n 1 "$1/asked")"
until systemctl is-active -q profd; do sleep 0.1; done

rm /run/go
systemctl restart --no-block profd
until [ "$(state SubState)" = start-pre ]; do sleep 0.1; done
echo "restarted: $(as_alice "$@" bind)"
touch /run/go
until systemctl is-active -q profd; do sleep 0.1; done
echo "running: $(as_alice "$@" bind)"

systemctl stop profd || exit 2
echo "stopped: $(as_alice "$@" bind)"
"""


@pytest.mark.skipif(passed.may_come(), reason="users may pass descriptors here (before Linux 6.16)")
def test_nobody_has_the_name_while_a_daemon_restarts_and_its_callers_are_answered() -> None:
    with systemd_host(network=True) as host:
        done = host.run("sh", "-c", SCRIPT, "sh", str(host.folder), CLIENT, str(ALICE), seconds=SECONDS)
        assert done.returncode == 0, (done.returncode, done.stderr, host.log)
        assert done.stdout.splitlines() == [
            "killed: Address already in use",
            "asked: 1 of us",
            "restarted: Address already in use",
            "running: Address already in use",
            "stopped: taken",
        ], (done.stdout, host.log)
        assert "of no use" not in host.log
        assert '"level": "error"' not in host.log, host.log
