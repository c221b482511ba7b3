"""Our text tables against those that torch prints of the same capture: layout, order and values."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import profd.query
import pytest

from tests.support.importing import import_trace

PROGRAM = Path(__file__).with_name("torch_report.py")
SECONDS = 120

pytest.importorskip("torch", reason="compares with torch.profiler, and there is no torch here")


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with traces and what torch printed of them."""
    folder = tmp_path_factory.mktemp("reports")
    subprocess.run([sys.executable, str(PROGRAM), str(folder)], check=True, capture_output=True, timeout=SECONDS)
    return folder


Row = tuple[tuple[str, ...], list[float]]


def row_of(line: str) -> Row:
    """(what must be equal, times in us and shares): torch adds up floats, where the last digit depends on the order."""
    words, numbers = [str(len(line))], []
    for cell in filter(None, re.split(r"  |: ", line)):
        number = re.fullmatch(r" *(-?[0-9.]+)(us|ms|s|%)", cell)
        if number is None:
            words.append(cell.strip())
        else:
            numbers.append(float(number[1]) * {"ms": 1e3, "s": 1e6}.get(number[2], 1.0))
    return tuple(words), numbers


def parts_of(text: str) -> tuple[list[str], list[Row], list[Row]]:
    """(lines above the rows, the rows, what is below them); rows of one value may come in any order."""
    lines = text.splitlines()
    rule = [at for at, line in enumerate(lines) if line.startswith("---")]
    body = lines[rule[1] + 1 : rule[2]]
    return lines[: rule[1] + 1], sorted(map(row_of, body)), [row_of(line) for line in lines[rule[2] :]]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["plain", "shapes", "memory"])
def test_tables_are_those_of_torch(name: str, reports: Path, tmp_path: Path) -> None:
    import_trace(reports / f"{name}.json", tmp_path / "t")
    trace = profd.query.open(tmp_path / "t")
    said = json.loads((reports / "texts.json").read_text())
    rows = trace.key_averages(group_by_input_shape=name == "shapes")
    for table, options in said["tables"].items():
        wanted = said["texts"][name]["tables"][table]
        ours, torchs = parts_of(rows.table(**options)), parts_of(wanted)
        assert ours[0] == torchs[0]
        assert [words for words, _ in ours[2]] == [words for words, _ in torchs[2]]
        if options["row_limit"] < 0:
            assert [words for words, _ in ours[1]] == [words for words, _ in torchs[1]]
            for (_, mine), (_, its) in zip([*ours[1], *ours[2]], [*torchs[1], *torchs[2]], strict=True):
                assert mine == pytest.approx(its, rel=1e-4, abs=0.011)
        else:  # which of two equal ones is the last is anybody's choice, how much time they took is not
            mine, its = (sorted(numbers[1] for _, numbers in part[1]) for part in (ours, torchs))
            assert mine == pytest.approx(its, rel=1e-4, abs=0.011)
    total = trace.total_average()
    assert [total.count, total.cpu_time_total_ns, total.self_cpu_time_total_ns] == said["texts"][name]["total"]
