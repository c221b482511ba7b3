"""Train a query encoder against a table of documents that is stored in half precision to save memory."""

import torch
from torch import nn


class Retriever(nn.Module):
    documents: torch.Tensor

    def __init__(self, documents: int, width: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width))
        self.register_buffer("documents", torch.randn(documents, width).half())

    def forward(self, queries: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
        documents = self.documents.float()[candidates]
        return torch.einsum("qw,qcw->qc", self.encoder(queries), documents)


def main() -> None:
    torch.set_num_threads(1)
    model = Retriever(150_000, 64)
    optimizer = torch.optim.Adam(model.parameters())
    print("ready", flush=True)
    while True:
        queries, candidates = torch.randn(64, 64), torch.randint(0, 150_000, (64, 16))
        loss = nn.functional.cross_entropy(model(queries, candidates), torch.zeros(64, dtype=torch.long))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
