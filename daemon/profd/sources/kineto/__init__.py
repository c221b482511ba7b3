"""The source `kineto`: libkineto's daemon mode, spoken to unmodified PyTorch processes.

`docs/facts/kineto.md` says what the other side does with a wrong answer; its list of things never to do is law here.
"""

from __future__ import annotations
