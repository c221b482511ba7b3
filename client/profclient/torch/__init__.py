"""PyTorch inside an attached process: its operators, memory and steps, for the agent's hooks.

Imported by the agent when a recording first asks for something of PyTorch's. It never imports torch: a process that
has not done so has no operators.
"""

from __future__ import annotations

from profclient.agent import register_hook
from profclient.torch import recording

register_hook("torch", recording.start, recording.stop)
