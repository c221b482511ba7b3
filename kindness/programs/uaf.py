"""Training steps under a long range of the user's own: it is open when a recording begins, and when it ends.

Run with MALLOC_MMAP_THRESHOLD_=4096, what was freed is not mapped any more: a use after free is a SIGSEGV.
"""

import time

import torch
from turns import turns

torch.set_num_threads(1)
model = torch.nn.Linear(64, 64)
batch = torch.randn(8, 64)
for _ in turns():
    with torch.profiler.record_function("step"):
        end = time.monotonic() + 0.06
        while time.monotonic() < end:
            model(batch).sum().backward()
            time.sleep(0.0005)
