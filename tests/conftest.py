"""Settings that every test shares."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

# The same inputs every time, fewer than the 100 of Hypothesis; `make fuzz` draws thousands of new ones.
settings.register_profile("same", derandomize=True, deadline=None, database=None, max_examples=60)
EXAMPLES = int(os.environ.get("PROFD_HYPOTHESIS_EXAMPLES", "2000"))
settings.register_profile("random", deadline=None, max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow])
PROFILE = os.environ.get("PROFD_HYPOTHESIS", "same")
settings.load_profile(PROFILE)
if PROFILE == "same" and hasattr(providers, "_get_local_constants"):
    # It also draws constants from whatever modules happen to be imported: then a test's inputs would
    # depend on which tests ran before it.
    providers._get_local_constants = lambda: providers._local_constants

# A shell that begins a run in the background has SIGINT ignored, and so would each program that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Between fork and exec (of a program as another user) gRPC would make its threads anew, and end the child if it cannot.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

HERE = Path(__file__).parent
SHARED = ("module", "package")


def pytest_configure() -> None:
    """Keep what profd keeps in a cache away from the user's; processes of xdist inherit it.

    It outlasts a run, because observers are compiled into it. Caches of other programs stay the user's:
    Playwright's browsers, ccache.
    """
    place = Path(tempfile.gettempdir()) / f"profd-tests-{os.getuid()}" / "cache"
    users = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    if users == place:
        return
    place.parent.mkdir(mode=0o700, exist_ok=True)
    place.mkdir(mode=0o700, exist_ok=True)
    for entry in users.iterdir() if users.is_dir() else ():
        if entry.name != "profd":
            with contextlib.suppress(FileExistsError):
                (place / entry.name).symlink_to(entry)
    os.environ["XDG_CACHE_HOME"] = str(place)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """What a failed test has left open goes with it.

    Its traceback holds the sockets and tasks of its frames. At some later collection another test would fail for them:
    warnings are errors.
    """
    failed = item.session.testsfailed
    ran = yield
    if item.session.testsfailed > failed:
        for name in ("last_type", "last_value", "last_traceback", "last_exc"):
            vars(sys).pop(name, None)
        kept, sys.unraisablehook = sys.unraisablehook, lambda unraisable: None
        try:
            gc.collect()
        finally:
            sys.unraisablehook = kept
    return ran


@pytest.fixture(autouse=True)
def _own_patience() -> None:
    """A process that missed a look in an earlier test is asked again: on a busy host that is no word about this one."""
    guarded = sys.modules.get("profd.targets.guarded")
    if guarded is not None:
        vars(guarded)["patience"] = guarded.Patience()


@pytest.fixture(scope="session")
def trace_data() -> Path:
    """The folder of real GPU traces; tests skip with a reason where it is absent."""
    folder = Path(os.environ.get("PROFD_TEST_DATA", HERE.parent.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real traces at {folder}; set PROFD_TEST_DATA")
    return folder


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in this hook, too
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that share a fixture of their module run in one process.

    Else each process makes one: a daemon takes a second of CPU, a program with torch more than two.
    """
    if not config.pluginmanager.hasplugin("xdist"):
        return  # one process runs all
    for item in items:
        if shares_a_fixture(item) and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.location[0]))


def shares_a_fixture(item: pytest.Item) -> bool:
    """Of its module or package: one of a test ends with it."""
    known = getattr(item, "_fixtureinfo", None)
    found = known.name2fixturedefs.values() if known is not None else ()
    return any(fixture.scope in SHARED for fixtures in found for fixture in fixtures)
