"""Python's own garbage collector looks through linked objects that a replay buffer keeps, again and again."""

import collections

import torch

torch.set_num_threads(1)


class Node:
    def __init__(self, parent: "Node | None") -> None:
        self.parent, self.me, self.values = parent, self, {"reward": 0.0}


replay = [Node(None) for _ in range(300_000)]
recent: collections.deque[Node] = collections.deque(maxlen=60_000)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs = torch.randn(64, 64)
print("ready", flush=True)
while True:
    node = None
    for _ in range(3_000):
        node = Node(node)
        recent.append(node)
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    optimizer.step()
