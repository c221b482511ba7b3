"""`python -m bench.gpu [SCRIPT …]`: run them, most valuable first, and write a result file for each.

With --rehearse they run without a GPU, against stand-ins and on the CPU: that says whether the scripts work, and
nothing about any GPU.
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.gpu import device
from bench.gpu.machine import no_gpu, no_torch_cuda
from bench.gpu.results import FOLDER, Result, verified_row

SCRIPTS = (
    "truth",
    "corpus",
    "end_to_end",
    "coexist",
    "planted",
    "options",
    "overhead",
    "residue",
    "detach",
    "whole",
    "queue",
    "capturing",
)
NEED_TORCH = frozenset(SCRIPTS[2:]) - {"queue"}


def main() -> int:
    """0: all passed, 1: one did not, 2: nothing could be measured here."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description=__doc__)
    parser.add_argument("scripts", nargs="*", default=SCRIPTS, metavar="SCRIPT", help=f"of {', '.join(SCRIPTS)}")
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder of the result files")
    parser.add_argument("--rehearse", action="store_true", help="without a GPU; needs --out, proves nothing about GPUs")
    arguments = parser.parse_args()
    if unknown := set(arguments.scripts) - set(SCRIPTS):
        parser.error(f"no script {', '.join(sorted(unknown))}; there are {', '.join(SCRIPTS)}")
    if arguments.rehearse:
        if arguments.out.resolve() == FOLDER.resolve():
            parser.error("--rehearse needs --out FOLDER: results of stand-ins are not kept with those of GPUs")
        return _rehearse(arguments.scripts, arguments.out)
    outcomes = [_run(script, arguments.out) for script in arguments.scripts]
    seen = [passed for passed in outcomes if passed is not None]
    return 2 if not seen else int(not all(seen))


def _rehearse(scripts: list[str], folder: Path) -> int:
    """In a process that has the stand-ins from its start."""
    with tempfile.TemporaryDirectory() as built:
        try:
            environment = device.rehearse(Path(built))
        except device.NoStandIns as error:
            print(f"nothing was rehearsed: {error}")
            return 2
        command = [sys.executable, "-m", "bench.gpu", *scripts, "--out", str(folder)]
        return subprocess.run(command, env={**os.environ, **environment}, check=False).returncode


def _run(script: str, folder: Path) -> bool | None:
    """None: it could not run here, and that was said."""
    why = no_torch_cuda() if script in NEED_TORCH else no_gpu()
    if why and not device.REHEARSAL:
        print(f"{script}: {why}")
        return None
    result: Result = importlib.import_module(f"bench.gpu.{script}").run()
    result.stand_in = device.REHEARSAL
    path = result.write(folder)
    for check in result.checks:
        verdict = {True: "ok", False: "FAILED", None: "not checked"}[check.passed]
        print(f"{script}: {verdict:<11} {check.name}  {check.detail}")
    print(f"{script}: {'passed' if result.passed else 'FAILED'}, {path}")
    print(verified_row(result, path.name), flush=True)
    return result.passed


if __name__ == "__main__":
    sys.exit(main())
