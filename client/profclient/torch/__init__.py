"""PyTorch inside an attached process: its operators, memory and steps, for the agent's hooks.

Imported by the agent when a recording first asks for something of PyTorch's. It never imports torch: a process that
has not done so has no operators.
"""

from __future__ import annotations

from profclient.agent import register_hook
from profclient.torch import recording, steps

register_hook("torch", recording.start, recording.stop, released=recording.released)
register_hook("shapes", recording.nothing, recording.stop_shapes)
register_hook("flops", recording.nothing, recording.nothing)  # from the shapes that come with `torch`
register_hook("gpu_fallback", recording.start_times, recording.stop_times, records_at_stop=True)
register_hook("memory", recording.start_memory, recording.stop_memory)
register_hook("iterations", steps.start, recording.nothing, rest=steps.rest)
