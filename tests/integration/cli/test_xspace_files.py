"""`profctl import x.xplane.pb`, and back with `export -f xspace`, with a daemon and on a store alone."""

import pytest
from profproto.xspace import xplane_pb2

from tests.integration.cli.conftest import on_both
from tests.support.xspace import canonical

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cli")]


def space():
    made = xplane_pb2.XSpace(hostnames=["here"])
    host = made.planes.add(name="/host:CPU")
    host.stat_metadata[1].id, host.stat_metadata[1].name = 1, "correlation_id"
    for number, name in enumerate(["MatMul", "cuLaunchKernel"], 1):
        host.event_metadata[number].id, host.event_metadata[number].name = number, name
    line = host.lines.add(id=11, name="python", timestamp_ns=1_000)
    line.events.add(metadata_id=1, offset_ps=500, duration_ps=9_000_000)
    line.events.add(metadata_id=2, offset_ps=1_000_500, duration_ps=2_000_000).stats.add(metadata_id=1, uint64_value=4)
    gpu = made.planes.add(name="/device:GPU:0")
    gpu.stat_metadata[1].id, gpu.stat_metadata[1].name = 1, "correlation_id"
    gpu.event_metadata[1].id, gpu.event_metadata[1].name = 1, "gemm"
    stream = gpu.lines.add(id=7, name="Stream #7(Compute)", timestamp_ns=1_000)
    stream.events.add(metadata_id=1, offset_ps=5_000_000, duration_ps=3_000_000).stats.add(
        metadata_id=1, uint64_value=4
    )
    return made


@on_both
def test_in_shown_and_out(profctl, tmp_path):
    file = tmp_path / "x.xplane.pb"
    file.write_bytes(space().SerializeToString())
    done = profctl("import", str(file), "--json")
    assert done.code == 0, done.err
    assert (done.json["events"], done.json["lost"]) == (3, [])
    trace = done.json["trace"]
    top = profctl("top", trace)
    assert top.code == 0, top.err
    assert "MatMul" in top.out
    back = tmp_path / "back.xplane.pb"
    done = profctl("export", trace, "-f", "xspace", "-o", str(back))
    assert done.code == 0, done.err
    assert "xprof" in done.err
    assert canonical(xplane_pb2.XSpace.FromString(back.read_bytes())) == canonical(space())


def test_what_is_neither(profctl, tmp_path):
    file = tmp_path / "x.xplane.pb"
    file.write_bytes(b"\x0a\xff\xff\xff")
    done = profctl("import", str(file))
    assert done.code != 0
    assert "xplane.pb" in done.err
