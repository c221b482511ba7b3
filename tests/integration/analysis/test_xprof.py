"""XProf itself as an oracle: derived lines equal event for event, and our exports open in it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
from profd.decode.xspace_kinds import DERIVED_MIN
from profd.derive.timeline.current import derive
from profd.derive.timeline.lines import NAMES, What
from profd.query.space import read_space
from profd.query.steps import steps_of_trace
from profd.segments.reader import TraceReader
from profproto.xspace import hlo_pb2, xplane_pb2

from tests.support.importing import import_trace
from tests.support.jax_jobs import JAX_PYTHON, needs_jax
from tests.support.random_xspace import Writer, gpu_space, tpu_space
from tests.support.timeline_cases import CASES, xspace_of
from tests.support.xprof import Rows, needs_xprof, rows, shown
from tests.support.xspace import exported, store

pytestmark = [pytest.mark.slow, needs_xprof]

TITLES: Final = tuple(NAMES.values())
RANDOM: Final = 150
COLLIDING: Final = "thirty_streams"  # XProf derives lines for sixteen of them

LOWER: Final = """
import sys
import jax, jax.numpy as jnp

def step(x, w):
    with jax.named_scope("first"):
        h = jnp.tanh(x @ w)
    with jax.named_scope("second"):
        h = jax.lax.fori_loop(0, 3, lambda i, v: jnp.sin(v) @ w, h)
    return (h * h).sum()

x = jnp.ones((8, 8))
module = jax.jit(jax.grad(step)).lower(x, x).compile().runtime_executable().hlo_modules()[0]
sys.stdout.buffer.write(module.as_serialized_hlo_module_proto())
"""

TRACE: Final = """
import sys
import jax, jax.numpy as jnp

step = jax.jit(lambda x: jnp.tanh(x @ x).sum())
x = jnp.ones((64, 64))
step(x).block_until_ready()
with jax.profiler.trace(sys.argv[1]):
    for number in range(3):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            step(x).block_until_ready()
"""


def derived_by_xprof(viewer: str) -> Rows:
    """Its derived lines of devices; XLA Ops of a TPU are recorded ones."""
    found = {}
    for (plane, line), events in rows(viewer).items():
        title = line.partition(" - from #")[0]
        if plane.startswith("/device:") and title in TITLES and not ("TPU" in plane and title == "XLA Ops"):
            found[plane, line] = events
    return found


def derived_by_us(content: bytes, folder: Path) -> Rows:
    found: Rows = {}
    for line in derive(read_space(store(content, folder)))[0]:
        if line.plane.startswith("/device:"):
            events = ((event.start, event.end - event.start, event.name, event.long_name) for event in line.events)
            found[line.plane, line.name] = sorted(events)
    return found


def from_zero(found: Rows) -> Rows:
    """Both count from a start of their own."""
    zero = min((events[0][0] for events in found.values()), default=0)
    return {place: [(start - zero, *rest) for start, *rest in events] for place, events in found.items()}


def check(contents: dict[str, bytes], folder: Path) -> None:
    """Every derived line of every file is the same."""
    viewers = shown(list(contents.values()), folder / "xprof", "trace_viewer")
    for (name, content), viewer in zip(contents.items(), viewers, strict=True):
        ours, theirs = derived_by_us(content, folder / name), derived_by_xprof(viewer["trace_viewer"])
        assert from_zero(ours) == from_zero(theirs), name


def test_worked_cases(tmp_path: Path) -> None:
    check({one["id"]: xspace_of(one["input"]) for one in CASES if one["id"] != COLLIDING}, tmp_path)


def test_random_traces_of_a_gpu(tmp_path: Path) -> None:
    check({f"gpu-{seed}": gpu_space(seed) for seed in range(RANDOM)}, tmp_path)


def test_random_traces_of_a_tpu(tmp_path: Path) -> None:
    check({f"tpu-{seed}": tpu_space(seed) for seed in range(RANDOM // 3)}, tmp_path)


def test_a_real_trace_of_a_gpu(trace_data: Path, tmp_path: Path) -> None:
    """Of 2020, without the lines and groups that its producer derived; what was `level 0` then is `tf_op` today."""
    space = xplane_pb2.XSpace.FromString((trace_data / "gpu_multiworker_2020.xplane.pb").read_bytes())
    for plane in space.planes:
        old = [line for line in plane.lines if DERIVED_MIN <= line.id < 0]
        for line in old:
            plane.lines.remove(line)
        grouped = {number for number, entry in plane.stat_metadata.items() if entry.name in ("group_id", "step_name")}
        for line in plane.lines:
            for event in line.events:
                kept = [stat for stat in event.stats if stat.metadata_id not in grouped]
                del event.stats[:]
                event.stats.extend(kept)
        for number in grouped:
            del plane.stat_metadata[number]
        for entry in plane.stat_metadata.values():
            entry.name = "tf_op" if entry.name == "level 0" else entry.name
    content = bytes(space.SerializeToString())
    assert sum(len(events) for events in derived_by_us(content, tmp_path / "ours").values()) > 6000
    check({"2020": content}, tmp_path)


@needs_jax
def test_symbols_of_a_real_program(tmp_path: Path) -> None:
    """A program that JAX compiled, kernels of each of its instructions: operators, scopes and sources."""
    hlo = _program()
    check({"hlo": hlo}, tmp_path)
    lines = derived_by_us(hlo, tmp_path / "again")
    assert {"Source code - from #7", "Framework Name Scope - from #7"} <= {line for _, line in lines}
    scopes = {name for _, _, name, _ in lines["/device:GPU:0", "Framework Name Scope - from #7"]}
    assert any("first" in scope for scope in scopes)


def _program() -> bytes:
    done = subprocess.run([JAX_PYTHON, "-c", LOWER], capture_output=True, timeout=240, env={"JAX_PLATFORMS": "cpu"})
    assert done.returncode == 0, done.stderr.decode()
    module = hlo_pb2.HloModule.FromString(done.stdout)
    instructions = [one for computation in module.computations for one in computation.instructions]
    for line, instruction in enumerate(instructions):
        # JAX of today tells sources by numbers of stack frames alone, which XProf 2.24.2 does not look up.
        instruction.metadata.source_file, instruction.metadata.source_line = b"/home/net.py", line
        instruction.metadata.stack_frame_id = 0
    space = xplane_pb2.XSpace()
    device = Writer(space.planes.add(id=1, name="/device:GPU:0"))
    stream = device.line(7, "Stream #7(Compute)")
    for number, instruction in enumerate(instructions):
        told: dict[str, Any] = {"kernel_details": "regs:1", "hlo_module": "jit_step", "program_id": 3}
        device.event(stream, "k", number * 10_000, 5_000, hlo_op=instruction.name.decode(), **told)
    programs = space.planes.add(id=2, name="/host:metadata")
    for number, name in ((1, "Hlo Proto"), (2, "program_id")):
        programs.stat_metadata[number].id, programs.stat_metadata[number].name = number, name
    entry = programs.event_metadata[1]
    entry.id, entry.name = 1, "jit_step(3)"
    entry.stats.add(metadata_id=1, bytes_value=hlo_pb2.HloProto(hlo_module=module).SerializeToString())
    entry.stats.add(metadata_id=2, uint64_value=3)
    return bytes(space.SerializeToString())


def test_a_tensorflow_trace_looks_the_same(trace_data: Path, tmp_path: Path) -> None:
    check_export((trace_data / "gpu_multiworker_2020.xplane.pb").read_bytes(), tmp_path)


@needs_jax
def test_a_trace_that_jax_has_written_looks_the_same(tmp_path: Path) -> None:
    arguments: list[Any] = [JAX_PYTHON, "-c", TRACE, tmp_path / "written"]
    done = subprocess.run(arguments, capture_output=True, timeout=240, env={"JAX_PLATFORMS": "cpu"})
    assert done.returncode == 0, done.stderr.decode()
    (path,) = (tmp_path / "written").rglob("*.xplane.pb")
    content = path.read_bytes()
    check({"jax": content}, tmp_path)  # no device: no derived lines, neither here nor there
    check_export(content, tmp_path)
    steps = steps_of_trace(store(content, tmp_path / "steps"))
    assert [step["name"] for step in steps["steps"]] == ["train 0", "train 1", "train 2"]


def check_export(content: bytes, folder: Path) -> None:
    """What XProf shows of our export is what it shows of the file."""
    again = exported(store(content, folder / "stored")).SerializeToString()
    original, ours = (rows(one["trace_viewer"]) for one in shown([content, again], folder / "x", "trace_viewer"))
    assert sum(map(len, ours.values())) > 10
    assert ours.keys() == original.keys()
    assert [place for place in ours if ours[place] != original[place]] == []


def test_a_torch_trace_has_kernels_and_steps(trace_data: Path, tmp_path: Path) -> None:
    import_trace(trace_data / "ddp_rank0.json.gz", tmp_path / "stored")
    reader = TraceReader(tmp_path / "stored")
    content = exported(reader).SerializeToString()
    (found,) = shown([content], tmp_path / "ours", "trace_viewer", "kernel_stats")
    lines = rows(found["trace_viewer"])
    kernels = sum(len(events) for (_, name), events in lines.items() if name.startswith("Stream #"))
    assert kernels == reader.meta.gpu_events
    assert lines["/device:GPU:0", NAMES[What.STEPS]]
    assert "nccl" in found["kernel_stats"]
