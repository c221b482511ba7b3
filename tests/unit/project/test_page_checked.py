"""`make check` looks at the page's modules: what it must refuse, and that nothing is needed from elsewhere."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def checked(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    module = folder / "module.js"
    module.write_text(text)
    return subprocess.run([ROOT / "tools" / "check_page", module], capture_output=True, text=True)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('export const size = document.querySelector("a").id;\n', "TS2531"),  # may be null
        ("/** @param {number} size */\nexport const twice = (size) => 2 * size;\ntwice('a');\n", "TS2345"),
        ("import { shown } from './units.js';\n", "no-unused-vars"),
        ("debugger;\n", "no-debugger"),
        ("export function a( {\n", "module.js"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, why: str) -> None:
    done = checked(tmp_path, text)
    assert done.returncode != 0
    assert why in done.stdout + done.stderr


def test_what_is_right_passes(tmp_path: Path) -> None:
    done = checked(tmp_path, "/** @param {number} size */\nexport const twice = (size) => 2 * size;\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_make_check_looks_at_every_module() -> None:
    makefile = (ROOT / "Makefile").read_text()
    recipe = makefile.partition("\ncheck: ")[2].partition("\n\n")[0]
    assert "tools/check_page" in recipe
