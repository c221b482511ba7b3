"""tools/count_code.py counts code, and nothing else."""

from __future__ import annotations

import importlib.util
from pathlib import Path

TOOL = Path(__file__).resolve().parents[3] / "tools" / "count_code.py"

SOURCE = '''"""A module.

With two paragraphs."""

import os  # why


class One:
    """A class."""

    size: int = 1
    """Of an attribute."""

    def text(self) -> str:
        # a comment
        return """text
of two lines""" + os.sep


EMPTY = ""
'''


def test_it_counts_lines_of_code() -> None:
    spec = importlib.util.spec_from_file_location("count_code", TOOL)
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert tool.code_lines(SOURCE) == len(("import", "class", "size", "def", "return", "of two lines", "EMPTY"))
    assert tool.code_lines("\n# nothing\n") == 0
