"""Sentences begin with a noun: no "Those that …" and no "Who …", in pages, docstrings and comments."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
PAGES: Final = ("*.md", "docs/*.md", "docs/decisions/*.md")
CODE: Final = ("client/profclient/**/*.py", "daemon/profd/**/*.py")
BEGIN: Final = re.compile(r'(?:"""|# |[.:] |\| |- |^ *)((?:Those|Who|Whoever) [a-z][^.?\n]*(?![^.?\n]*\?))')


def nameless(text: str) -> list[str]:
    """Beginnings of such sentences. A question may begin with `Who`."""
    found = (match for line in text.splitlines() for match in BEGIN.finditer(line))
    return [match[1][:50] for match in found if not match.string[match.end(1) :].startswith("?")]


def test_a_nameless_sentence_is_found() -> None:
    assert nameless('"""Those that live.') == ["Those that live"]
    assert nameless("It ends. Who waits for it goes on.") == ["Who waits for it goes on"]
    assert nameless("Who may ask? Users who wait, and those that do not.") == []


def test_sentences_of_pages_and_code_name_their_subject() -> None:
    files = [file for pattern in (*PAGES, *CODE) for file in ROOT.glob(pattern)]
    assert len(files) > 500
    found = {str(file.relative_to(ROOT)): nameless(file.read_text()) for file in files}
    assert {file: sentences for file, sentences in found.items() if sentences} == {}
