"""Raw CUPTI buffers: those that were recorded on GPUs through our collector, and the way of a file by a stand-in."""

from __future__ import annotations

import json
import lzma
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bench.gpu import corpus
from bench.gpu.program import COPIES_BACK, COPIES_TO, COPIES_WITHIN, truth
from bench.gpu.records import Recorded, compare
from bench.measure import ROOT, child

SUPPORT = ROOT / "tests" / "support"
RECORDED = sorted(corpus.FOLDER.glob("*.json.xz"))


@pytest.fixture(scope="module")
def fakes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process whose CUDA and CUPTI are stand-ins."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler to build the stand-ins for CUDA")
    folder = tmp_path_factory.mktemp("fakes")
    for source, library in (("fake_cupti.c", "libcupti.so.13"), ("fake_cuda.c", "libcuda.so.1")):
        command: list[Any] = [
            compiler,
            "-shared",
            "-fPIC",
            "-pthread",
            "-o",
            folder / library,
            SUPPORT / source,
            "-ldl",
        ]
        subprocess.run(command, check=True)
    return {"LD_LIBRARY_PATH": str(folder), "PROFD_CUPTI_LIBRARY": str(folder / "libcupti.so.13")}


def replayed(path: Path, fakes: dict[str, str]) -> dict[str, Any]:
    version = str(corpus.load(path)["cupti_version"])
    environment = {**fakes, "FAKE_CUPTI_VERSION": version}
    found: dict[str, Any] = child("bench.gpu.corpus:replay", {"path": str(path)}, environment=environment)["result"]
    return found


@pytest.mark.skipif(not RECORDED, reason="no corpus was recorded yet: run `python -m bench.gpu corpus` on a GPU")
@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name)
def test_recorded_on_a_gpu(path: Path, fakes: dict[str, str]) -> None:
    assert path.stat().st_size <= corpus.FILE_BYTES_MAX
    found = replayed(path, fakes)
    seen = Recorded(**found["seen"])
    assert int(found["report"]["gpu.unknown"]) == 0
    assert seen.kernels
    if found["expected"] is not None:
        assert [check for check in compare(truth(), seen, path.name) if not check.passed] == []
        assert Counter(seen.copy_names) == {  # from a buffer of ctypes, and back
            "Memcpy HtoD (Pageable -> Device)": COPIES_TO,
            "Memcpy DtoH (Device -> Pageable)": COPIES_BACK,
            "Memcpy DtoD (Device -> Device)": COPIES_WITHIN,
        }


def test_the_way_of_a_file(fakes: dict[str, str], tmp_path: Path) -> None:
    """Recorded from the stand-in, written, read and replayed in another process: all of the known truth."""
    arguments = {"program": "truth", "folder": str(tmp_path)}
    made = child("bench.gpu.corpus:record", arguments, environment=fakes)["result"]
    assert (made["dropped"], made["file"]) == (0, "truth-stand-in-cupti130001.json.xz")
    assert made["file_bytes"] < corpus.FILE_BYTES_MAX
    found = replayed(tmp_path / made["file"], fakes)
    assert [check for check in compare(truth(), Recorded(**found["seen"]), "replay") if not check.passed] == []
    assert found["expected"] == json.loads(json.dumps(truth().as_dict()))


@pytest.mark.parametrize(
    "content",
    [
        b"no xz",
        lzma.compress(b"no JSON"),
        lzma.compress(b"[]"),
        lzma.compress(b'{"schema": 2}'),
        lzma.compress(b'{"schema": 1, "names": {}, "buffers": [{"bytes": "?"}]}'),
    ],
)
def test_what_is_no_corpus(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.json.xz").write_bytes(content)
    with pytest.raises(corpus.BadCorpus, match=r"x\.json\.xz is"):
        corpus.load(tmp_path / "x.json.xz")
