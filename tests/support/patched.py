"""A copy of the tree with a patch of `docs/examples`: what the patch adds runs there, in processes of its own.

A patch that does not apply any more is made anew. Stage your own work (`git add`), apply the patch by hand (`git
apply --reject --unidiff-zero FILE`) and mend it. `python -m tests.support.patched a-source` then writes the changes
that are not staged to the patch. Take them back with `git restore` and `git clean`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from profclient import _recorder
from profd import _engine, _host, _scan

ROOT: Final = Path(__file__).parents[2]
EXAMPLES: Final = ROOT / "docs" / "examples"
SECONDS: Final = 120
PROFCTL: Final = (sys.executable, "-c", "from profclient.cli import main; main()")
_PACKAGES: Final = ("daemon/profd", "client/profclient", "protos/profproto")
_OTHERS: Final = ("docs", "tests/support", "tests/unit", "tests/conftest.py", "tests/__init__.py")
_FILES: Final = ("pyproject.toml", "CHANGELOG.md")
_NATIVE: Final = {
    **{str(module.__file__): "daemon/profd" for module in (_engine, _host, _scan)},
    str(_recorder.__file__): "client/profclient",
}
# An editable install finds the modules of this tree before PYTHONPATH is asked.
_ALONE: Final = (
    "import sys\nsys.meta_path[:] = [one for one in sys.meta_path if 'editable' not in type(one).__module__]\n"
)
# A line that others write beside breaks no patch.
_CROWDED: Final = "CHANGELOG.md"


@dataclass(frozen=True)
class Patched:
    """The copy at `tree`, with `docs/examples/NAME.patch`."""

    name: str
    tree: Path

    @cached_property
    def files(self) -> tuple[str, ...]:
        """All that the patch touches."""
        return tuple(re.findall(r"^\+\+\+ b/(.*)$", self.text, re.MULTILINE))

    @cached_property
    def text(self) -> str:
        return (EXAMPLES / f"{self.name}.patch").read_text()

    @property
    def environ(self) -> dict[str, str]:
        """What makes Python run the copy."""
        paths = [self.tree, *(self.tree / Path(package).parent for package in _PACKAGES)]
        return {"PYTHONPATH": os.pathsep.join(map(str, paths))}

    def run(self, *command: str, given: str = "", code: int = 0, environ: Mapping[str, str] | None = None) -> str:
        """Run it in the copy; stdout, or stderr where it is to fail with `code`."""
        done = subprocess.run(
            [*command],
            env={**os.environ, **(environ or {}), **self.environ},
            cwd=self.tree,
            input=given,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stderr if code else done.stdout


def patched(name: str, tree: Path) -> Patched:
    """Copy the tree to `tree`, which is made, and apply the patch there."""
    for package in (*_PACKAGES, *_OTHERS, *_FILES):
        place = tree / package
        place.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / package).is_dir():
            shutil.copytree(ROOT / package, place, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / package, place)
    for native, package in _NATIVE.items():
        shutil.copy(native, tree / package)
    (tree / "sitecustomize.py").write_text(_ALONE)
    command = ["git", "apply", "--unidiff-zero", str(EXAMPLES / f"{name}.patch")]
    done = subprocess.run(command, cwd=tree, env={**os.environ, "GIT_DIR": ""}, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stderr}\n{__doc__}"
    return Patched(name, tree)


def shown(patch: Patched, page: str) -> list[str]:
    """Lines of Python on a page of docs that the patch does not add; `...` stands for what a page leaves out."""
    added = {line[1:].strip() for line in patch.text.splitlines() if line.startswith("+")}
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)
    lines = [line.partition("  #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line and line != "..." and line not in added]


def _write(name: str) -> None:
    subprocess.run(["git", "add", "--intent-to-add", "."], cwd=ROOT, check=True)
    crowded = _diff("-U1", "--", _CROWDED)
    crowded = re.sub(r"^@@ -(\d+),2 \+(\d+),3 @@.*\n( .*\n\+.*\n) .*\n", r"@@ -\1,1 +\2,2 @@\n\3", crowded, flags=re.M)
    pages = _diff("-U1", "--", "docs", f":!{EXAMPLES}")
    text = crowded + pages + _diff("--", ".", f":!{_CROWDED}", ":!docs")
    (EXAMPLES / f"{name}.patch").write_text(re.sub(r"^index .*\n", "", text, flags=re.MULTILINE))


def _diff(*arguments: str) -> str:
    command = ["git", "diff", "--no-color", "--no-ext-diff", *arguments]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    _write(sys.argv[1])
