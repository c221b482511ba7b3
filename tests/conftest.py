"""Settings that every test shares."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

# The same inputs every time; `make fuzz` looks for new ones.
settings.register_profile("same", derandomize=True, deadline=None, database=None)
EXAMPLES = int(os.environ.get("PROFD_HYPOTHESIS_EXAMPLES", "2000"))
settings.register_profile("random", deadline=None, max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow])
PROFILE = os.environ.get("PROFD_HYPOTHESIS", "same")
settings.load_profile(PROFILE)
if PROFILE == "same" and hasattr(providers, "_get_local_constants"):
    # It also draws constants from whatever modules happen to be imported: then a test's inputs would
    # depend on which tests ran before it.
    providers._get_local_constants = lambda: providers._local_constants

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def trace_data() -> Path:
    """The folder of real GPU traces; tests skip with a reason where it is absent."""
    folder = Path(os.environ.get("PROFD_TEST_DATA", HERE.parent.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real traces at {folder}; set PROFD_TEST_DATA")
    return folder
