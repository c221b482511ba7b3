"""Where large blocks come from, in processes of their own: malloc is told for good."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support import mapped_blocks

pytestmark = pytest.mark.skipif(not mapped_blocks.KNOWN, reason="this C library does not say what is mapped")

TOLD = "from profd.kernel import heap; assert heap.give_large_blocks_back()\n"


@pytest.mark.parametrize(("first", "blocks"), [(TOLD, "mapped"), ("", "heap")], ids=["told", "left alone"])
def test_large_blocks_go_back_to_the_kernel_where_malloc_is_told_so(first: str, blocks: str) -> None:
    program = [sys.executable, "-c", first + mapped_blocks.SAYS]
    said = subprocess.run(program, capture_output=True, text=True, check=True, timeout=60).stderr
    assert said == f"large blocks: {blocks}\n"
