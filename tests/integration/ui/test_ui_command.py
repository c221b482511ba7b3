"""`profctl ui` as a command: what it prints, and where it begins."""

from __future__ import annotations

import re
import signal
import subprocess
import sys

import pytest
from profclient.cli.commands.ui import page_of
from profclient.errors import UsageError

PROFCTL = (sys.executable, "-W", "ignore", "-c", "from profclient.cli import main; main()")
URL = "http://127.93.7.40:40123/"


@pytest.mark.parametrize(
    ("what", "page"),
    [
        ("", "/"),
        ("captures", "/captures"),
        ("06v1", "/trace/06v1"),
        ("c0123", "/capture/c0123"),
        (f"{URL}#/", "/"),
        (f"{URL}#/captures", "/captures"),
        (f"{URL}#/trace/06v1?step=12", "/trace/06v1?step=12"),
        (f"{URL}#/ranks/c0123", "/ranks/c0123"),
        (f"{URL}#/trace/06v1?step=12..14", "/trace/06v1?step=12..14"),
        (f"{URL}#/compare/06v1/06v2?by=path", "/compare/06v1/06v2?by=path"),
    ],
    ids=str,
)
def test_where_the_page_begins(what: str, page: str) -> None:
    assert page_of(what) == page


@pytest.mark.parametrize(
    "what",
    ["../x", "06v1 ", "<b>", "x" * 40, URL, f"{URL}#key=abc", f"{URL}#/trace/<b>", f"{URL}#//evil.example/"],
    ids=str,
)
def test_what_leads_to_no_page_is_refused(what: str) -> None:
    with pytest.raises(UsageError):
        page_of(what)


def test_a_store_that_is_not_there_is_said_at_once() -> None:
    for words in (["ui", "--store", "/no/store"], ["--store", "/no/store", "ui"]):
        done = subprocess.run([*PROFCTL, *words, "--no-browser"], capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (3, "")
        assert "There is no store in /no/store: name the daemon's state directory" in done.stderr


def test_without_a_browser_the_address_and_the_tunnel_are_printed(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("SSH_CONNECTION", "192.0.2.1 1 192.0.2.2 22")
    monkeypatch.delenv("DISPLAY", raising=False)
    words = [*PROFCTL, "--store", str(tmp_path), "ui"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        address = process.stdout.readline()
        said = "".join(iter(process.stderr.readline, "profctl serves it until Ctrl-C.\n"))
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate()
    port = address.removeprefix("http://127.0.0.1:").partition("/#key=")[0]
    assert port.isdigit()
    assert rest == ""
    assert re.search(rf"ssh -L {port}:127\.\d+\.\d+\.\d+:{port} ", said)
    assert f"ssh -L {port}:127.0.0.1:" not in said
    assert "You came by ssh" in said
    assert address.partition("key=")[2].strip() not in said
    assert process.returncode == 130
