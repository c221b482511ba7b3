"""Optimizers with global hooks of the program's own, which come and go while it steps."""

import threading
import time

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from turns import turns

torch.set_num_threads(1)
seen = [0, 0]


def before(optimizer, args, kwargs):
    """A slow one: the interpreter lock goes while the hooks are iterated."""
    seen[0] += 1
    time.sleep(0)


def after(optimizer, args, kwargs):
    """Runs after each step."""
    seen[1] += 1


register_optimizer_step_pre_hook(before)
register_optimizer_step_post_hook(after)
weight = torch.nn.Parameter(torch.ones(4))
optimizer = torch.optim.SGD([weight], 1e-3)
others = threading.Event()


def beside():
    """A second thread that steps its own optimizer, as a learner beside an actor would."""
    own = torch.nn.Parameter(torch.ones(4))
    its = torch.optim.SGD([own], 1e-3)
    while not others.is_set():
        own.grad = torch.ones(4)
        its.step()


thread = threading.Thread(target=beside)
thread.start()
for _ in turns():
    for _ in range(20):
        weight.grad = torch.ones(4)
        optimizer.step()
others.set()
thread.join()
if seen[0] != seen[1]:
    raise SystemExit(f"{seen[0]} hooks before steps, {seen[1]} after")
