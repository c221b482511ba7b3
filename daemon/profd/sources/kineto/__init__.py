"""The source `kineto`: libkineto's daemon mode, spoken to unmodified PyTorch processes.

What the other side does with a wrong answer is in `docs/facts/kineto.md`;
its list of things never to do is law here.
"""

from __future__ import annotations
