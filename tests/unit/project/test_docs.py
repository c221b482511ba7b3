"""The pages: every link and anchor leads somewhere, and the index names every page."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from profclient.cli.app import COMMANDS

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")
MENTION = re.compile(r"`(docs/[\w./-]+)`")
HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)


def prose(page: Path) -> str:
    """The text of a page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """What a link may name after `#`: the headings, as GitHub and `make docs` number and spell them."""
    found: dict[str, int] = {}
    for heading in HEADING.findall(prose(page)):
        words = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()).replace(" ", "-")
        found[words] = found.get(words, -1) + 1
    return {f"{word}-{n}" if n else word for word, last in found.items() for n in range(last + 1)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(re.sub(r"`[^`\n]*`", "", prose(page))):
        if target.startswith(("https://", "http://")):
            continue
        name, _, anchor = target.partition("#")
        place = (page.parent / name).resolve() if name else page
        assert place.exists(), f"{target}: no such file"
        assert not anchor or anchor in anchors(place), f"{target}: {name or page.name} has no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_of_docs_that_a_page_names_are_there(page: Path) -> None:
    for name in MENTION.findall(page.read_text()):
        assert (ROOT / name).exists(), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_names_that_the_site_makes_links_are_pages(page: Path) -> None:
    linked = runpy.run_path(str(DOCS / "conf.py"))["linked"]
    text = linked(str(page.relative_to(ROOT).with_suffix("")), prose(page))
    links = {(page.parent / target.partition("#")[0]).resolve() for target in LINK.findall(text) if ":" not in target}
    assert {link for link in links if link.suffix == ".md"} - set(PAGES) == set()


def test_the_index_names_every_page() -> None:
    named = {(DOCS / target.partition("#")[0]).resolve() for target in LINK.findall((DOCS / "index.md").read_text())}
    assert {page for page in PAGES if page.is_relative_to(DOCS)} - named - {DOCS / "index.md"} == set()


def test_pictures_are_files_of_ours_and_fetch_nothing() -> None:
    for page in PAGES:
        assert not re.search(r"!\[[^\]]*\]\((https?:)?//", page.read_text()), page
    for picture in DOCS.rglob("*.svg"):
        assert not re.search(r"(href|src|url|@import)[^>]*https?:", picture.read_text()), picture


def test_nobody_is_told_to_install_profd_from_an_index() -> None:
    """There is no such package there: who follows the advice gets nothing, or what a stranger has put there."""
    texts = [*PAGES, *(path for room in ("client", "daemon", "demo", "deploy") for path in (ROOT / room).rglob("*"))]
    told = [
        str(path.relative_to(ROOT))
        for path in texts
        if path.suffix in (".py", ".md", ".service", ".mount", ".yml")
        if re.search(r"pip install (-\S+ )*['\"]?profd\b(?!-)", path.read_text())
    ]
    assert told == []


def test_the_list_of_commands_has_all_of_them() -> None:
    text = (DOCS / "commands.md").read_text()
    missing = [name for name in COMMANDS if not re.search(rf"`(profctl )?(--store DIR )?{name}\b", text)]
    assert missing == []


def test_a_word_of_the_glossary_has_one_meaning() -> None:
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \|$", (DOCS / "glossary.md").read_text(), re.MULTILINE)
    words = [word.strip() for row in rows[1:] for word in row.split(",")]
    assert sorted(words) == sorted(set(words))
    assert len(words) >= 20


def test_the_places_where_a_change_goes_are_there() -> None:
    """Rooms are named from `daemon/profd`, everything else from the root."""
    table = (DOCS / "architecture.md").read_text().partition("## Where a change goes")[2]
    rows = [line.split("|") for line in table.splitlines() if line.startswith("| ")]
    places = [place for row in rows for place in re.findall(r"`([^`]+)`", row[2])]
    assert len(places) > 50
    missing = [
        place
        for place in places
        if not any(
            next(root.glob(place.rstrip("/") + end), None)
            for root in (ROOT, ROOT / "daemon/profd")
            for end in ("", ".*")
        )
    ]
    assert missing == []
