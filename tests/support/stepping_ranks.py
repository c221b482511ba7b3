"""Two ranks that step together, as a collective would make them: each waits for the other's step.

With `OPTIMIZER` the steps are those of a real torch.optim.SGD, of which rank 1 has made three more; otherwise those of
profclient.step().
"""

from __future__ import annotations

from tests.support.attached import READY

_TOGETHER = f"""
import mmap, os, struct, sys, threading, time
import profclient
profclient.attach()
rank, pace = int(os.environ["RANK"]), float(os.environ["PACE"])
told = mmap.mmap(os.open(os.environ["STEPS"], os.O_RDWR), 16)
def together(n):
    told[8 * rank : 8 * rank + 8] = struct.pack("Q", n)
    while struct.unpack_from("Q", told, 8 - 8 * rank)[0] < n and not done.is_set():
        time.sleep(min(pace / 20, 0.001))
{READY}
"""

PROGRAM = f"""{_TOGETHER}
n = 0
while not done.is_set():
    profclient.step()
    time.sleep(pace)
    n += 1
    together(n)
"""

OPTIMIZER = f"""
import torch
weight = torch.nn.Parameter(torch.ones(4))
optimizer = torch.optim.SGD([weight], lr=0.1)
weight.grad = torch.ones(4)
{_TOGETHER}
for _ in range(3 * rank):
    optimizer.step()
n = 0
while not done.is_set():
    optimizer.step()
    with profclient.record_function("pace"):  # to record: no observer is built here, and samples may come too late
        time.sleep(pace)
    n += 1
    together(n)
"""

ALONE = f"""{_TOGETHER}
while not done.is_set():
    profclient.step()
    time.sleep(pace)
"""
