"""PyTorch programs that libkineto traces: `train`, `ranges` or `threads`, until standard input ends."""

import select
import sys
import threading
import time

import torch

torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batch, wanted = torch.randn(32, 64), torch.randn(32, 8)


def train():
    """One step as everybody writes it."""
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(batch), wanted).backward()
    optimizer.step()


def ranges():
    """Steps within a long range of the user's own: it is open when a trace begins, and when it ends."""
    with torch.profiler.record_function("epoch"):
        end = time.monotonic() + 0.06
        while time.monotonic() < end:
            train()
            time.sleep(0.002)


def threads():
    """Operators on threads that come and go while traces begin and end."""
    ran = []
    each = [threading.Thread(target=lambda: ran.append(model(batch).sum().item())) for _ in range(4)]
    for thread in each:
        thread.start()
    train()
    for thread in each:
        thread.join()
    if len(ran) != len(each):
        sys.exit(f"{len(each) - len(ran)} threads did not run")


turn = {"train": train, "ranges": ranges, "threads": threads}[sys.argv[1]]
turn()
print("ready", flush=True)
turns = 0
while not select.select([sys.stdin], [], [], 0.03)[0]:
    turn()
    turns += 1
print("ok", turns)
