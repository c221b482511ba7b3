"""Frameworks and versions from mapped libraries."""

from __future__ import annotations

import ctypes
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd import _host
from profd.targets import mapped
from profd.targets.errands.work import read_without_links
from profd.targets.mapped import parse_maps, torch_version

SITE = "/opt/env/lib/python3.11/site-packages"


def maps(*paths: str) -> bytes:
    return "".join(f"7f0-7f1 r-xp 00000000 08:01 4242       {path}\n" for path in paths).encode()


@pytest.mark.parametrize(
    ("paths", "framework", "python", "cuda"),
    [
        ([], "", False, False),
        (["/usr/bin/bash"], "", False, False),
        (["/usr/bin/python3.12"], "python", True, False),
        (["/usr/lib/libpython3.11.so.1.0"], "python", True, False),
        (["/usr/bin/python3.12 (deleted)"], "python", True, False),
        (["/usr/share/python3.12.txt"], "", False, False),
        ([f"{SITE}/torch/lib/libtorch_cpu.so", "/usr/bin/python3"], "torch", True, False),
        ([f"{SITE}/jaxlib/libjax_common.so", "/usr/lib/libcuda.so.550.1"], "jax", False, True),
        ([f"{SITE}/jaxlib/xla_extension.so"], "jax", False, False),
        ([f"{SITE}/tensorflow/libtensorflow_framework.so.2"], "tensorflow", False, False),
        (["/usr/lib/x86_64-linux-gnu/libcuda.so.1", "/opt/app"], "cuda", False, True),
        (["/opt/with space/libcuda.so.1"], "cuda", False, True),
    ],
)
def test_frameworks(paths: list[str], framework: str, python: bool, cuda: bool) -> None:
    mapped = parse_maps(maps(*paths))
    assert (mapped.framework, mapped.python, mapped.cuda) == (framework, python, cuda)


@given(st.binary(max_size=300))
def test_garbage_does_not_raise(raw: bytes) -> None:
    parse_maps(raw)
    parse_maps(maps("/usr/bin/python3") + raw)


PARTS = st.sampled_from(["python3", "libcuda.so", "/", "(deleted)", " ", "x", "[anon:", "\n", "\xff"])
PATHS = st.lists(PARTS, max_size=8).map("".join)
# As the kernel writes them, and cut anywhere.
MAPS = st.tuples(st.lists(st.tuples(st.sampled_from(["", " ", "      "]), PATHS), max_size=5), st.integers(0, 20))


@given(MAPS)
def test_names_are_found_as_by_a_slow_twin(drawn: tuple[list[tuple[str, str]], int]) -> None:
    lines, cut = drawn
    raw = "".join(f"7f0-7f1 r-xp 00000000 08:01 4242{gap}{path}\n" for gap, path in lines).encode("latin-1")
    raw = raw[: len(raw) - cut] if cut else raw
    every = re.findall(rb"^\S+ \S+ \S+ \S+ \S+ +(/[^\n]+)$", raw, re.MULTILINE)
    paths = (path.removesuffix(b" (deleted)") for path in every)
    names = (b"python3", b"libcuda.so")
    twin = list(dict.fromkeys(path for path in paths if path.rpartition(b"/")[2].startswith(names)))
    assert _host.mapped_names(raw, names, 1000) == twin
    assert _host.mapped_names(raw, names, 1) == twin[:1]


def test_of_many_mapped_files_those_alone_reach_python_that_say_something(monkeypatch: pytest.MonkeyPatch) -> None:
    reached: list[bytes] = []

    class Host:
        @staticmethod
        def mapped_names(*asked: Any) -> list[bytes]:
            reached.extend(_host.mapped_names(*asked))
            return reached

    monkeypatch.setattr(mapped, "_host", Host)
    many = maps(*(f"/tmp/{number}" for number in range(52_000)), "/usr/bin/python3")
    assert parse_maps(many).python
    assert reached == [b"/usr/bin/python3"]
    reached.clear()
    parse_maps(maps(*(f"/tmp/{number}/python3" for number in range(52_000))))
    assert len(reached) == 1024


def library(root: Path, version: bytes = b"__version__ = '2.13.0+cu130'\ndebug = False\n") -> str:
    package = root / "env" / "torch"
    (package / "lib").mkdir(parents=True)
    (package / "version.py").write_bytes(b"from typing import Optional\n" + version)
    return "/env/torch/lib/libtorch_cpu.so"


def test_torch_version(tmp_path: Path) -> None:
    assert torch_version(tmp_path, library(tmp_path), os.geteuid(), []) == "2.13.0+cu130"


def test_torch_version_says_nothing_but_a_version(tmp_path: Path) -> None:
    assert torch_version(tmp_path, library(tmp_path, b"__version__ = 'root:x:0:0\x1b'\n"), os.geteuid(), []) == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="takes a file that its user may not read")
@pytest.mark.parametrize("shut", ["env", "env/torch", "env/torch/version.py"])
def test_what_its_user_may_not_read_is_not_told(tmp_path: Path, shut: str) -> None:
    """Who mounts a folder need not be able to look into it."""
    tmp_path.chmod(0o755)
    path = library(tmp_path)
    assert torch_version(tmp_path, path, 1000, [1000]) == "2.13.0+cu130"
    (tmp_path / shut).chmod(0o700)
    assert torch_version(tmp_path, path, 1000, [1000]) == ""
    assert torch_version(tmp_path, path, 0, []) == "2.13.0+cu130"


def test_links_are_not_followed(tmp_path: Path) -> None:
    # GIVEN a target that points its torch package at somebody else's
    library(tmp_path)
    (tmp_path / "linked").symlink_to(tmp_path / "env")
    (tmp_path / "own" / "torch").mkdir(parents=True)
    (tmp_path / "own" / "torch" / "version.py").symlink_to(tmp_path / "env" / "torch" / "version.py")
    assert torch_version(tmp_path, "/linked/torch/lib/libtorch_cpu.so", os.geteuid(), []) == ""
    assert torch_version(tmp_path, "/own/torch/lib/libtorch_cpu.so", os.geteuid(), []) == ""


def test_what_is_no_file_is_not_even_opened(tmp_path: Path) -> None:
    """Opening a device does something: a watchdog's begins to count."""
    os.mkfifo(tmp_path / "version.py")
    libc = ctypes.CDLL(None, use_errno=True)
    with open(libc.inotify_init1(os.O_NONBLOCK), "rb", buffering=0) as seen:
        assert libc.inotify_add_watch(seen.fileno(), os.fsencode(tmp_path / "version.py"), 0x20) > 0  # IN_OPEN
        assert read_without_links(bytes(tmp_path), b"/version.py", 10, os.geteuid(), []) is None
        assert seen.read(4096) is None


def test_fifo_does_not_block(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    os.mkfifo(tmp_path / "torch" / "version.py")
    assert torch_version(tmp_path, "/torch/lib/libtorch_cpu.so", os.geteuid(), []) == ""


@pytest.mark.parametrize("path", ["", "/lib/x.so", "/a/../b/lib/libtorch_cpu.so", "/no/where/lib/libtorch_cpu.so"])
def test_odd_paths(tmp_path: Path, path: str) -> None:
    assert torch_version(tmp_path, path, os.geteuid(), []) == ""
