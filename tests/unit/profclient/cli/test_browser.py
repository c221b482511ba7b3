"""Which browsers are given a file of ours, and which are left to the address that was printed."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from profclient.cli import browser
from profclient.ui.asking import Library
from profclient.ui.server import PageServer

NOTES_ITS_ARGUMENTS = '#!/bin/sh\necho "$@" > "$0.told"\n'


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that PATH begins with."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("profclient.cli.browser.tempfile.tempdir", None)
    return folder


def program(file: Path, text: str = "#!/bin/sh\n") -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o755)
    return str(file)


def test_an_ordinary_browser_reads_our_files(programs: Path) -> None:
    program(programs / "firefox", "\x7fELF /snap/bin/firefox")  # no script
    assert browser.reads_our_files("firefox")
    assert browser.reads_our_files(program(programs / "mine", '#!/bin/sh\nexec /usr/lib/firefox/firefox "$@"\n'))
    assert browser.reads_our_files("no-such-browser")


@pytest.mark.parametrize(
    "text",
    [
        "exec /snap/bin/firefox",
        "exec snap run chromium",
        "exec /usr/bin/flatpak run org.mozilla.firefox",
        "exec firejail firefox",
        'exec node out/server-cli.js --openExternal "$@"',
    ],
)
def test_a_script_that_starts_one_in_a_sandbox_does_not(programs: Path, text: str) -> None:
    program(programs / "browser", f"#!/bin/sh\n{text}\n")
    assert not browser.reads_our_files("browser")


@pytest.mark.parametrize("where", ["snap/bin/firefox", "usr/bin/snap", ".vscode-server/bin/0a/bin/helpers/browser.sh"])
def test_a_link_to_one_does_not(programs: Path, tmp_path: Path, where: str) -> None:
    program(tmp_path / where)
    (programs / "firefox").symlink_to(tmp_path / where)
    assert not browser.reads_our_files("firefox")


@pytest.mark.parametrize(
    ("file", "web", "reads"),
    [
        ("firefox.desktop", "firefox.desktop", True),
        ("editor.desktop", "firefox.desktop", False),
        ("org.mozilla.firefox.desktop", "org.mozilla.firefox.desktop", False),  # a flatpak
        ("", "", True),
    ],
)
def test_the_desktops_browser_is_looked_at(programs: Path, tmp_path: Path, file: str, web: str, reads: bool) -> None:
    program(programs / "xdg-open")
    program(programs / "xdg-mime", f'#!/bin/sh\n[ "$3" = text/html ] && echo {file} || echo {web}\n')
    program(tmp_path / "data/flatpak/exports/share/applications/org.mozilla.firefox.desktop")
    assert browser.reads_our_files("xdg-open") is reads


def served() -> PageServer:
    return PageServer(Library())


def test_one_in_a_sandbox_is_told_nothing(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = program(programs / "browser", f"{NOTES_ITS_ARGUMENTS}# snap run firefox\n")
    monkeypatch.setenv("BROWSER", name)
    monkeypatch.setattr("profclient.cli.browser.webbrowser._tryorder", None)
    with served() as page, ExitStack() as ending:
        assert not browser.browse(page, ending)
    assert [path.name for path in tmp_path.iterdir()] == ["bin"]
    assert not Path(f"{name}.told").exists()


def test_another_is_told_of_a_file_and_not_of_the_address(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = program(programs / "browser", NOTES_ITS_ARGUMENTS)
    monkeypatch.setenv("BROWSER", name)
    monkeypatch.setattr("profclient.cli.browser.webbrowser._tryorder", None)
    with served() as page, ExitStack() as ending:
        assert browser.browse(page, ending)
        told = Path(f"{name}.told").read_text().strip()
        assert told.startswith("file:///")
        assert told.endswith("/open.html")
        assert page.url in Path(told.removeprefix("file://")).read_text()
    assert not list(tmp_path.glob("profctl-open-*"))


def test_a_file_that_another_user_could_exchange_is_not_made(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIVEN TMPDIR is a folder in which everybody can put another file in the place of ours THEN no browser is told."""
    name = program(programs / "browser", NOTES_ITS_ARGUMENTS)
    monkeypatch.setenv("BROWSER", name)
    monkeypatch.setattr("profclient.cli.browser.webbrowser._tryorder", None)
    (tmp_path / "all").mkdir()
    (tmp_path / "all").chmod(0o777)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "all"))
    with served() as page, ExitStack() as ending:
        assert not browser.browse(page, ending)
    assert not Path(f"{name}.told").exists()


def test_without_a_display_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    with served() as page, ExitStack() as ending:
        assert not browser.browse(page, ending)


def test_a_desktop_that_says_no_text_is_one_that_does_not_know(programs: Path) -> None:
    program(programs / "xdg-mime", "#!/bin/sh\nprintf '\\377\\n'\n")
    assert browser._default_of("text/html") == "\N{REPLACEMENT CHARACTER}"
