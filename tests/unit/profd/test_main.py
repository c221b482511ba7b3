"""What happens around the daemon's start: everything of a daemon itself is in tests/integration/daemon."""

from __future__ import annotations

import gc

import pytest
from profd.main import _built_for_good


def test_the_garbage_collector_works_again_once_the_daemon_is_built() -> None:
    frozen = gc.get_freeze_count()
    try:
        with _built_for_good():
            assert not gc.isenabled()
        assert gc.isenabled()
        assert gc.get_freeze_count() > frozen
    finally:
        gc.unfreeze()


def test_it_works_again_where_the_daemon_could_not_be_built() -> None:
    with pytest.raises(OSError, match="no port"), _built_for_good():
        raise OSError("no port")
    assert gc.isenabled()
