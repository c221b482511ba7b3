"""`profctl open`'s server: one file, once, to whoever knows the address."""

from __future__ import annotations

import io
import ipaddress
import urllib.error
import urllib.request
from contextlib import closing

import pytest
from profclient.serve import OneTrace

SECONDS = 60
DATA = bytes(range(256)) * 5000


def get(url: str) -> tuple[bytes, dict[str, str]]:
    with urllib.request.urlopen(url, timeout=SECONDS) as answer:
        return answer.read(), {name.lower(): value for name, value in answer.headers.items()}


def status(url: str) -> int:
    with pytest.raises(urllib.error.HTTPError) as caught:
        get(url)
    with closing(caught.value):
        return caught.value.code


def served(title: str = "train.py") -> OneTrace:
    return OneTrace(io.BytesIO(DATA), len(DATA), title)


def test_the_page_then_the_trace_then_nothing() -> None:
    with closing(served()) as trace:
        page, headers = get(trace.url)
        assert b"https://ui.perfetto.dev" in page
        assert b'title: "train.py"' in page
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in headers  # no other page may read it
        assert get(trace.url)[0]  # the page may be asked for again
        assert get(trace.url + "trace")[0] == DATA
        trace.wait()
        assert status(trace.url + "trace") == 410


@pytest.mark.parametrize("path", ["", "trace", "x/trace", "../trace", "favicon.ico", "%00/trace"])
def test_nothing_without_the_address(path: str) -> None:
    with closing(served()) as trace:
        assert status(f"http://{trace.address}:{trace.port}/{path}") == 404
        assert status(trace.url + "other") == 404
        assert get(trace.url + "trace")[0] == DATA  # and nothing is used up by it


def test_only_loopback_listens() -> None:
    with closing(served()) as trace:
        assert trace.url.startswith(f"http://{trace.address}:")
        assert ipaddress.ip_address(trace.address).is_loopback


def test_a_title_cannot_leave_its_string() -> None:
    with closing(served('"</script><b>\u2028')) as trace:
        assert get(trace.url)[0].count(b"</script>") == 1


def test_addresses_differ() -> None:
    with closing(served()) as one, closing(served()) as other:
        assert one.address != other.address  # a browser may know what another user has served at this port
        assert one.url.split("/")[3] != other.url.split("/")[3]
