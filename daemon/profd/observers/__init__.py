"""Observers of PyTorch's operators for processes that have none: built once for each torch and user (docs/torch.md)."""
