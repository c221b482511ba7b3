"""Variables of the environment that begin with `PROFD_`: settings, and those of other programs of this project.

Any other variable is a slip of the pen: the intended setting would silently not hold.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from profd.errors import BadInput

PREFIX: Final = "PROFD_"
# Read by profclient, by programs that it starts, and by tests and tools of a checkout; a test looks for all of them.
OTHERS: Final = frozenset(
    (
        *("PROFD_ADDRESS", "PROFD_ATTACH", "PROFD_ATTACHED_PID", "PROFD_CAPTURE", "PROFD_CUPTI_LIBRARY"),
        *("PROFD_DEMANGLER", "PROFD_RUN", "PROFD_RUN_ID", "PROFD_SUPCXX", "PROFD_TORCH_DIR", "PROFD_TRAP"),
        *("PROFD_CUPTI_INCLUDE", "PROFD_CUPTI_PYTHON", "PROFD_HOSTILE_SEED", "PROFD_HOSTILE_SESSIONS"),
        *("PROFD_HYPOTHESIS", "PROFD_HYPOTHESIS_EXAMPLES", "PROFD_JOB_PYTHON", "PROFD_FLAKES_FAIL"),
        *("PROFD_NVTX_INCLUDE", "PROFD_ROUNDS", "PROFD_SANITIZE", "PROFD_SANITIZED", "PROFD_XPROF_PYTHON"),
    )
)
_FAMILIES: Final = ("PROFD_BENCH_", "PROFD_TEST_")
# What Kubernetes puts into the pods of a namespace that has a service named profd, profd-metrics ...
_OF_A_SERVICE: Final = re.compile(r"PROFD_(\w+_)?(SERVICE_(HOST|PORT(_\w+)?)|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)")
_ADDRESS: Final = re.compile(r"(tcp|udp|sctp)://")


def check(environ: Mapping[str, str], settings: Collection[str]) -> None:
    """Raise BadInput for a variable that is neither one of `settings` (whole names) nor known otherwise."""
    known = {*settings, *OTHERS}
    for name in sorted(environ):
        if name.startswith(PREFIX) and name not in known and not _foreign(name, environ[name]):
            raise BadInput(f"the environment: there is no variable {name}.{_meant(name, settings)}")


def _foreign(name: str, value: str) -> bool:
    if name.startswith(_FAMILIES) or _OF_A_SERVICE.fullmatch(name):
        return True
    return name.endswith("_PORT") and bool(_ADDRESS.match(value))


def _meant(name: str, settings: Iterable[str]) -> str:
    bare = [known.removeprefix(PREFIX) for known in settings]  # what all begin with makes none of them alike
    near = difflib.get_close_matches(name.removeprefix(PREFIX), bare, 1)
    guess = f" Did you mean {PREFIX}{near[0]}?" if near else ""
    return f"{guess} Correct or unset it; docs/configuration.md lists every variable."
