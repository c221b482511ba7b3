"""`profctl open` in a real Chromium: its page hands the whole trace to the UI's window, and tells it nothing else.

The UI itself is on the Internet; a page that speaks its protocol stands in its place.
"""

import io
import os
import shutil
import subprocess
import urllib.parse
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import pytest
from profclient.cli.browser import PrivatePage
from profclient.serve import OneTrace

from tests.support.perfetto_page import HOST, perfetto_page
from tests.support.waiting import PATIENCE_SECONDS

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium here (apt-get install chromium)"),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl here (apt-get install openssl)"),
]

TRACE = os.urandom(3_000_017)
TITLE = "train.py </script> “rank 0”"


@contextmanager
def browser(folder, url, perfetto_port):
    command: list[Any] = [
        CHROMIUM,
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
    ]
    command += [f"--user-data-dir={folder / 'profile'}", "--disable-popup-blocking", "--ignore-certificate-errors"]
    command += [f"--host-resolver-rules=MAP {HOST} 127.0.0.1:{perfetto_port}", "--remote-debugging-port=0", url]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()


@pytest.mark.parametrize("by_file", [False, True])
def test_the_trace_arrives_whole(tmp_path, by_file):
    with (
        perfetto_page(tmp_path) as perfetto,
        closing(OneTrace(io.BytesIO(TRACE), len(TRACE), TITLE)) as served,
        ExitStack() as ending,
    ):
        private = PrivatePage(served.entrance)
        ending.callback(private.remove)
        ending.enter_context(browser(tmp_path, private.url if by_file else served.url, perfetto.port))
        opened = perfetto.opened.get(timeout=PATIENCE_SECONDS)
        served.wait()
    assert opened.trace == TRACE
    assert opened.title == TITLE
    address = urllib.parse.urlsplit(served.url)
    assert opened.origin == f"{address.scheme}://{address.netloc}"  # without the path, which holds the token
    assert perfetto.referrers[0] is None
    assert all(address.netloc not in (referrer or "") for referrer in perfetto.referrers)
