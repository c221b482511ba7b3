"""A precompiled header is an image of the compiler's memory: one that lies in torch's folder is not loaded."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from profclient.torch import build as building
from profclient.torch import sources
from profclient.torch.build import Torch
from profclient.torch.builds import Key

GXX = shutil.which("g++")
pytestmark = pytest.mark.skipif(GXX is None, reason="needs g++")
KEY = Key("2.13.0", "cf30153c4c131c81", True, "x86_64", "0123abcd")
FIRST = "c10/cuda/CUDACachingAllocator.h"  # of torch's that the part for CUDA includes
BEFORE_ALL = "stdc-predef.h"  # that every compiler includes by itself


@pytest.fixture
def torch(tmp_path: Path) -> Torch:
    return Torch("python", tmp_path / "torch", KEY, "13.0")


def plant(torch: Torch, name: str, *more: str) -> None:
    """Compiled with the very flags, so that gcc has no reason of its own not to take it."""
    header = torch.home / "include" / name
    header.parent.mkdir(parents=True)
    header.write_text("int planted;\n")
    given = building.command(torch, ["g++"], Path("unused"))
    flags = [flag for flag in given if flag.startswith(("-O", "-D", "-std", "-fPIC", "-fvis", "-m", "-fno-lto"))]
    out = ["-x", "c++-header", str(header), "-o", f"{header}.gch"]
    subprocess.run(["g++", *flags, *more, *out], check=True)


def headers(command: list[str]) -> list[str]:
    """What the compiler says of each: `!` before a precompiled one that was loaded."""
    done = subprocess.run([*command, "-H"], capture_output=True, text=True, check=False)
    return [line for line in done.stderr.splitlines() if line.startswith((".", "!"))]


@pytest.mark.parametrize("cuda", [False, True])
@pytest.mark.parametrize("planted", [FIRST, BEFORE_ALL])
def test_a_planted_one_is_not_loaded(torch: Torch, tmp_path: Path, planted: str, cuda: bool) -> None:
    ours = Path(sources.directory()) / "torch" / "first"
    plant(torch, planted, *(["-nostdinc"] if planted == BEFORE_ALL else [f"-isystem{ours}"]))
    command = (
        building.cuda_command(torch, ["g++"], tmp_path / "out.so", torch.home / "include")
        if cuda
        else building.command(torch, ["g++"], tmp_path / "out.so")
    )
    said = headers(command)
    assert said
    assert not [line for line in said if line.startswith("!")], said


def test_it_would_be_loaded_where_it_is_the_first(torch: Torch, tmp_path: Path) -> None:
    """So that the tests above can fail."""
    ours = Path(sources.directory()) / "torch" / "first"
    plant(torch, FIRST, f"-isystem{ours}")
    source = tmp_path / "unit.cpp"
    source.write_text(f"#include <{FIRST}>\n")
    said = headers(building.command(torch, ["g++"], tmp_path / "out.so", source))
    assert [line for line in said if line.startswith("!")]
