"""Train a classifier beside a watchdog that should stop it if no step ends for an hour."""

import os
import threading
import time

import torch
from torch import nn


class Watchdog(threading.Thread):
    def __init__(self, patience_s: float = 3600.0) -> None:
        super().__init__(name="watchdog", daemon=True)
        self.patience_s = patience_s
        self.last_step = time.monotonic()

    def run(self) -> None:
        while True:
            if time.monotonic() - self.last_step > self.patience_s:
                os._exit(3)


def main() -> None:
    torch.set_num_threads(1)
    watchdog = Watchdog()
    watchdog.start()
    model = nn.Sequential(*[layer for _ in range(8) for layer in (nn.Linear(64, 64), nn.ReLU())], nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    print("ready", flush=True)
    while True:
        inputs, target = torch.randn(512, 64), torch.randint(0, 10, (512,))
        loss = nn.functional.cross_entropy(model(inputs), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watchdog.last_step = time.monotonic()


if __name__ == "__main__":
    main()
