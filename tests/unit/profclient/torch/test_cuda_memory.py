"""Where allocations on CUDA devices are recorded, and what is said where they are not."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from profclient.torch import cuda_memory
from profclient.torch.builds import Build, Key

KEY = Key("2.13.0+cu130", "cf30153c4c131c81", True, "x86_64", "0123abcd")
BUILD = Build(Path("/builds/one"), KEY, "aa", "python", "c++ 12", "2026-01-01", cuda_sha256="bb")


class Library:
    """The part for CUDA, and what it was asked."""

    def __init__(self, text: str = KEY.text, said: bytes | None = None) -> None:
        self.calls: list[str] = []
        self.profd_torch_cuda_build = text.encode
        self.profd_torch_cuda_attach = lambda: self._note("attach", said)
        self.profd_torch_cuda_start = lambda recorder: self._note(f"start {recorder}", None)
        self.profd_torch_cuda_stop = lambda: self._note("stop", None)

    def _note(self, call: str, answer: bytes | None) -> bytes | None:
        self.calls.append(call)
        return answer


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A torch with CUDA that runs."""
    fake = SimpleNamespace(version=SimpleNamespace(cuda="13.0"), cuda=SimpleNamespace(is_initialized=lambda: True))
    monkeypatch.setitem(sys.modules, "torch", fake)
    monkeypatch.setattr(cuda_memory, "_library", None)
    return fake


def loads(monkeypatch: pytest.MonkeyPatch, library: Library) -> Library:
    monkeypatch.setattr(cuda_memory, "_load", lambda build: library)
    return library


def test_it_is_attached_once_and_told_where_to_write(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    library = loads(monkeypatch, Library())
    for _ in range(2):
        assert cuda_memory.start(BUILD, 7) == ""
        cuda_memory.stop()
    assert library.calls == ["attach", "start 7", "stop", "start 7", "stop"]


def test_without_cuda_nothing_is_missing(torch: Any) -> None:
    torch.version.cuda = None
    assert cuda_memory.start(BUILD, 7) == ""
    cuda_memory.stop()


def test_a_build_without_the_part_says_why(torch: Any) -> None:
    bare = dataclasses.replace(BUILD, cuda_sha256="")
    assert "profctl torch build" in cuda_memory.start(bare, 7)
    assert cuda_memory.start(dataclasses.replace(bare, without_cuda="no headers"), 7) == "no headers"


def test_before_cuda_runs_there_is_nothing_to_follow(torch: Any) -> None:
    torch.cuda.is_initialized = lambda: False
    assert "initialized" in cuda_memory.start(BUILD, 7)


def test_an_allocator_that_cannot_be_followed(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    library = loads(monkeypatch, Library(said=b"cudaMallocAsync does not support it\nException raised from"))
    assert "cudaMallocAsync does not support it" in cuda_memory.start(BUILD, 7)
    assert library.calls == ["attach"]


def test_the_part_of_another_build_is_not_attached(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    library = loads(monkeypatch, Library(text="of another"))
    assert "another build" in cuda_memory.start(BUILD, 7)
    assert not library.calls
