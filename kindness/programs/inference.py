"""Four threads that run a model, some of them new each time, and one that trains; results have to be equal."""

import threading

import torch
from turns import expect, turns

torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
batch = torch.randn(8, 16)
with torch.no_grad():
    wanted = model(batch).sum().item()


def infer(found):
    """One thread's work."""
    with torch.inference_mode():
        found.append(model(batch).sum().item())


for _ in turns():
    found = []
    threads = [threading.Thread(target=infer, args=(found,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    model(batch).sum().backward()
    model.zero_grad()
    for thread in threads:
        thread.join()
    expect("sums of four threads", found, [wanted] * 4)
