"""Settings that every test shares."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# The same inputs every time; `make fuzz` looks for new ones.
settings.register_profile("same", derandomize=True, deadline=None, database=None)
settings.register_profile("random", deadline=None, max_examples=2000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("PROFD_HYPOTHESIS", "same"))

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def trace_data() -> Path:
    """The folder of real GPU traces; tests skip with a reason where it is absent."""
    folder = Path(os.environ.get("PROFD_TEST_DATA", HERE.parent.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real traces at {folder}; set PROFD_TEST_DATA")
    return folder
