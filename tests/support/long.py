"""Tests that take half a minute and more of mostly waiting, or say again what a shorter one does: `make test-long`.

@long
def test_that_waits(): ...
"""

from __future__ import annotations

import os
from typing import Final

import pytest

IS_ASKED: Final = bool(os.environ.get("PROFD_TEST_LONG"))
long = pytest.mark.skipif(not IS_ASKED, reason="it is long: make test-long runs it")
