"""HLO protos for tests."""

from __future__ import annotations

from typing import Any

from profproto.xspace import hlo_pb2


def program(name: str = "jit_step", *, frames: list[tuple[str, int]] | None = None, **ops: dict[str, Any]) -> bytes:
    """Instructions by name with their metadata; `frames`: (file, line) of each stack frame."""
    module = hlo_pb2.HloModule(name=name.encode())
    computation = module.computations.add()
    for op, metadata in ops.items():
        computation.instructions.add(name=op.encode(), metadata=hlo_pb2.OpMetadata(**metadata))
    for number, (file, line) in enumerate(frames or [], 1):
        module.stack_frame_index.file_names.append(file.encode())
        module.stack_frame_index.file_locations.add(file_name_id=number, line=line)
        module.stack_frame_index.stack_frames.add(file_location_id=number)
    return bytes(hlo_pb2.HloProto(hlo_module=module).SerializeToString())
