"""Sphinx's settings for `make docs`. The pages are plain Markdown; what a site needs beside them is made here.

The source folder is the root of the repository, so that links between README.md and docs/ work there as they do in an
editor. The contents in the sidebar are the links of docs/index.md, under its headings.
"""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import normpath, relpath
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGES = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]
LINK = re.compile(r"\[[^\]]*\]\(([\w./-]+)\.md(?:#[\w-]*)?\)")
MENTION = re.compile(r"(?<![\[`])`((?:docs/)?[\w/-]+\.md)`(?!\])")

project = "profd"
author = "the profd authors"
extensions = ["myst_parser"]
root_doc = "docs/index"
include_patterns = [*PAGES, "docs/**.md"]
exclude_patterns = [".venv*", "build", ".bench", ".kindness", ".soak", "bench", "tests"]
myst_heading_anchors = 4
html_theme = "furo"
html_title = "profd"
html_copy_source = False
html_use_index = False
html_show_sphinx = False
html_show_copyright = False
highlight_language = "text"


def contents(index: str) -> str:
    """A hidden toctree for each heading of the index: its links, in order, each page once."""
    parts: list[str] = []
    seen: set[str] = set()
    for section in re.split(r"^## ", index, flags=re.MULTILINE)[1:]:
        caption = section.partition("\n")[0]
        pages = [page for page in dict.fromkeys(LINK.findall(section)) if page not in seen]
        seen.update(pages)
        if pages:
            parts.append("\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```"]))
    others = "\n".join(f"../{Path(name).stem}" for name in PAGES)
    parts.append(f"```{{toctree}}\n:hidden:\n:caption: Project\n\n{others}\n```")
    return "\n\n".join(parts)


def is_page(place: str) -> bool:
    """Is this file of the repository a page of the site?"""
    return (place in PAGES or place.startswith("docs/")) and (ROOT / place).is_file()


def linked(page: str, text: str) -> str:
    """The text with every page that it names in backquotes as a link: `docs/store.md` reads well in a terminal."""

    def link(found: re.Match[str]) -> str:
        named = found[1]
        place = named if (ROOT / named).is_file() else normpath(f"{Path(page).parent}/{named}")
        return f"[{Path(named).stem}]({relpath(place, Path(page).parent)})" if is_page(place) else found[0]

    blocks = re.split(r"(^```.*?^```)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if number % 2 else MENTION.sub(link, part) for number, part in enumerate(blocks))


def read(_app: Any, docname: str, source: list[str]) -> None:
    """A page as Sphinx shall see it."""
    source[0] = linked(docname, source[0])
    if docname == root_doc:
        source[0] += "\n\n" + contents(source[0])


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", read)
