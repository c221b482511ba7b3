"""Root of a container without a user namespace, with our sockets in it: it has the host's uid, and no right to it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from profproto.v1 import capture_pb2, capture_pb2_grpc

from tests.support import readable
from tests.support.daemon import ONE_WORKER, running_daemon

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(readable.why_not()), reason=readable.why_not())]

# Its arguments: control.sock and the address.
WITHIN = """
import json, socket, subprocess, sys
import grpc
from profproto.v1 import capture_pb2 as pb, capture_pb2_grpc

def token():
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.connect(sys.argv[1])
        return (("profd-token", json.loads(sock.recv(65536))["token"]),)

beside = subprocess.Popen([sys.executable, "-c", "print(flush=True); input()"], stdin=-1, stdout=-1)
beside.stdout.readline()
with grpc.insecure_channel(sys.argv[2], options=[("grpc.default_authority", "localhost")]) as channel:
    captures, mine = capture_pb2_grpc.CaptureServiceStub(channel), token()
    seen = captures.ListTargets(pb.ListTargetsRequest(all=True), metadata=mine)
    where = captures.Where(pb.WhereRequest(selector=pb.Selector(pids=[beside.pid])), metadata=mine)
    try:
        captures.SetEnabled(pb.SetEnabledRequest(enabled=False), metadata=mine)
        switched = ""
    except grpc.RpcError as error:
        switched = error.code().name
print(json.dumps([[target.pid for target in seen.targets], [one.pid for one in where.processes], switched]))
beside.communicate()
"""


@pytest.fixture
def outside() -> Iterator[subprocess.Popen[bytes]]:
    """A process of root's on the host."""
    process = subprocess.Popen([sys.executable, "-c", "print(flush=True); input()"], stdin=-1, stdout=-1)
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.communicate()


def test_it_has_its_container_and_no_more(outside: subprocess.Popen[bytes]) -> None:
    # GIVEN root in a pid namespace of its own, and a daemon of root's
    with running_daemon(environ=ONE_WORKER, user=False) as daemon:
        command = ["unshare", "--pid", "--fork", sys.executable, "-c", WITHIN, str(daemon.control)]
        # WHEN it asks for all processes, for the stacks of its own one, and to switch captures off
        done = subprocess.run([*command, f"unix:{daemon.socket}"], capture_output=True, text=True, check=True)
        seen, looked_into, switched = json.loads(done.stdout)
        # THEN it has its own process, and nothing of the host
        assert (seen, switched) == (looked_into, "PERMISSION_DENIED")
        # WHEN root of the host asks THEN others' are there, too
        stub = daemon.stub(capture_pb2_grpc.CaptureServiceStub)
        listed = stub.ListTargets(capture_pb2.ListTargetsRequest(all=True), metadata=daemon.metadata(), timeout=60)
        assert outside.pid in [target.pid for target in listed.targets]
