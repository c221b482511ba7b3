"""Questions to a stored trace, for notebooks and for `profctl`.

>>> import profd.query
>>> trace = profd.query.open("/var/lib/profd", "4f0c")  # or the directory of a trace
>>> trace.key_averages(group_by_input_shape=True)[0].name
'aten::addmm'
>>> print(trace.key_averages().table(sort_by="self_cuda_time_total", row_limit=10))
"""

from __future__ import annotations

from profd.query.averages import Average
from profd.query.trace import STACK_METRICS, Averages, Trace, open_trace

__all__ = ["STACK_METRICS", "Average", "Averages", "Trace", "open", "open_trace"]

open = open_trace  # noqa: A001 - profd.query.open reads as it should; nobody imports the name alone
