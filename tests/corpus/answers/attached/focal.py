"""Train a small detector head with a focal loss that follows its paper line by line."""

import torch
from torch import nn


def focal_loss(logits: torch.Tensor, target: torch.Tensor, gamma: float = 2.0) -> torch.Tensor:
    total = torch.zeros(())
    for i in range(logits.shape[0]):
        probabilities = torch.softmax(logits[i], dim=0)
        for c in range(logits.shape[1]):
            if c == target[i]:
                total = total - (1 - probabilities[c]) ** gamma * torch.log(probabilities[c])
            else:
                total = total - 0.05 * torch.log(1 - probabilities[c] + 1e-6)
    return total / logits.shape[0]


def main() -> None:
    torch.set_num_threads(1)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(256, 10)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    print("ready", flush=True)
    while True:
        images, target = torch.randn(32, 3, 32, 32), torch.randint(0, 10, (32,))
        optimizer.zero_grad()
        focal_loss(model(images), target).backward()
        optimizer.step()


if __name__ == "__main__":
    main()
