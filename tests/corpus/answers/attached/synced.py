"""Train a classifier and keep the norm of each parameter, safely, in a file."""

import json
import os
import tempfile

import torch
from torch import nn


class MetricLog:
    def __init__(self) -> None:
        self.file = tempfile.TemporaryFile("w", dir="/var/tmp")  # noqa: SIM115 - open for good, and on a disk

    def write(self, step: int, name: str, value: float) -> None:
        self.file.write(json.dumps({"step": step, "name": name, "value": value}) + "\n")
        self.file.flush()
        os.fsync(self.file.fileno())


def main() -> None:
    torch.set_num_threads(1)
    log = MetricLog()
    model = nn.Sequential(*[nn.Linear(128, 128) for _ in range(6)], nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters())
    step = 0
    print("ready", flush=True)
    while True:
        step += 1
        inputs, target = torch.randn(256, 128), torch.randint(0, 10, (256,))
        loss = nn.functional.cross_entropy(model(inputs), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                log.write(step, name, parameter.grad.norm().item())


if __name__ == "__main__":
    main()
