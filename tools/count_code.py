#!/usr/bin/env python3
"""Code lines of Python: what is left of a file without docstrings, comments and blank lines.

    tools/count_code.py                  # daemon and client, by room, and together
    tools/count_code.py FILE_OR_FOLDER…

A line counts if a token of code begins or goes on in it. Text within a string counts; a docstring does not.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGES: Final = (ROOT / "daemon" / "profd", ROOT / "client" / "profclient")
_NO_CODE: Final = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENCODING, tokenize.ENDMARKER),
}


def code_lines(source: str) -> int:
    """How many lines of this source are code. Raises SyntaxError."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - _docstring_lines(ast.parse(source)))


def _docstring_lines(tree: ast.Module) -> set[int]:
    """Also those of attributes: a string that is a statement."""
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            found.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return found


def count(place: Path) -> int:
    """Of a file, or of all Python files below a folder."""
    files = sorted(place.rglob("*.py")) if place.is_dir() else [place]
    return sum(code_lines(file.read_text()) for file in files)


def main(places: list[Path]) -> None:
    """Print a line for each place, the largest first, and the sum."""
    counts = sorted(((count(place), place) for place in places), reverse=True)
    for lines, place in counts:
        if lines:
            print(f"{lines:8,}  {place.relative_to(ROOT) if place.is_relative_to(ROOT) else place}")
    print(f"{sum(lines for lines, _ in counts):8,}  together")


if __name__ == "__main__":
    given = [Path(word).resolve() for word in sys.argv[1:]]
    main(given or [entry for package in PACKAGES for entry in package.iterdir() if entry.suffix in ("", ".py")])
