"""The collector on buffers that a stand-in for CUPTI has filled (tests/support/fake_cupti.c)."""

from __future__ import annotations

import ctypes
import os
import statistics

LAUNCHES = 7_500  # a buffer of 2 MiB, nearly full
_NAME = b"void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>(int, float*)"


def per_record(rounds: int) -> dict[str, float]:
    """Median ns a record, of the collector and of a bare walk over the same buffers."""
    from profclient import _recorder, gpu

    fake = ctypes.CDLL(os.environ["PROFD_CUPTI_LIBRARY"])
    fake.fake_bare_walk_ns.restype = fake.fake_complete_ns.restype = ctypes.c_double
    ours, bare = [], []
    for _ in range(rounds):
        _recorder.arm(arena_bytes=16 << 20, sources=8)
        _recorder.populate()  # as the agent's thread does
        gpu.start()
        fake.fake_launch(_NAME, 7, LAUNCHES)
        records = fake.fake_waiting()
        bare.append(fake.fake_bare_walk_ns() / records)
        ours.append(fake.fake_complete_ns() / records)
        gpu.stop()
        _recorder.disarm()
        _recorder.release()
    return {"ours": statistics.median(ours), "bare": statistics.median(bare)}
