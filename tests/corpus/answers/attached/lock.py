"""One of four ranks waits for a lock that its thread for logs keeps; the others wait for it in a collective.

Arguments: a file that the ranks meet in.
"""

import os
import sys
import threading

import torch
import torch.distributed as dist

print("ready", flush=True)  # the others are waited for
rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", rank=rank, world_size=ranks, init_method=f"file://{sys.argv[1]}")
lock, locked = threading.RLock(), threading.Event()


def write_logs() -> None:
    with lock:
        locked.set()
        threading.Event().wait()


def log_metrics() -> None:
    with lock:
        print("logged", flush=True)


gradient = torch.ones(1024)
while True:
    if rank == 2 and not locked.is_set():
        threading.Thread(target=write_logs, name="log-writer", daemon=True).start()
        locked.wait()
        log_metrics()
    dist.all_reduce(gradient)
