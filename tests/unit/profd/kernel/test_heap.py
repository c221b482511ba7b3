"""What malloc keeps, in processes of their own: it is told for good."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support import malloc_habits

pytestmark = pytest.mark.skipif(not malloc_habits.KNOWN, reason="this C library does not say what it keeps")

TOLD = "from profd.kernel import heap; assert heap.keep_little()\n"
LITTLE = "large blocks: mapped, heaps: 1\n"


@pytest.mark.parametrize(("first", "said"), [(TOLD, LITTLE), ("", "large blocks: heap, heaps: 2\n")])
def test_malloc_keeps_little_where_it_is_told_so(first: str, said: str) -> None:
    program = [sys.executable, "-c", first + malloc_habits.SAYS]
    assert subprocess.run(program, capture_output=True, text=True, check=True, timeout=60).stderr == said
