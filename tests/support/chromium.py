"""A real Chromium, driven by Playwright: the one of this machine, else Playwright's own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.waiting import PATIENCE_SECONDS

REQUIRED = "PROFD_TEST_UI"  # set by `make test-ui`: then nothing is skipped
_NAMES = ("chromium-headless-shell", "chromium", "google-chrome")


@contextmanager
def chromium() -> Iterator[Any]:
    """A `playwright.sync_api.Browser`. Skips the test, with the reason, where there is none."""
    if not os.environ.get(REQUIRED):
        pytest.importorskip("playwright", reason="no Playwright here (make test-ui installs it, and Chromium)")
    from playwright.sync_api import Error, sync_playwright

    found = next(filter(None, map(shutil.which, _NAMES)), None)
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        except Error as error:
            if os.environ.get(REQUIRED):
                raise
            pytest.skip(f"no Chromium here (make test-ui installs it): {error.message.splitlines()[0]}")
        try:
            yield browser
        finally:
            browser.close()


def new_tab(browser: Any, **options: Any) -> Any:
    """A tab in a context of its own. It waits as long as other tests do: 30 s, Playwright's own, are few at load 20."""
    context = browser.new_context(**options)
    context.set_default_timeout(PATIENCE_SECONDS * 1000)
    return context.new_page()
