"""Tables fit, and no name reaches the terminal as anything but text."""

import json
import os
from pathlib import Path

import pytest
from profclient.cli import app, output
from profclient.cli.commands.export import into_file
from profclient.cli.output import emit_json
from profclient.errors import ClientError, UsageError
from rich.cells import cell_len


def lines(capsys) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_a_wide_column_gives_way_and_numbers_stay_whole(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    output.table(("PID", "STATE", "COMMAND"), [("123456", "ready", "x" * 500)], right=("PID",), wide=("COMMAND",))
    head, row = lines(capsys)
    assert head.split() == ["PID", "STATE", "COMMAND"]
    assert row.startswith("123456  ready  xxx")
    assert row.endswith("…")
    assert len(row) <= 40


def test_two_wide_columns_share(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    output.table(("A", "B", "C"), [("1", "b" * 100, "c" * 100)], wide=("B", "C"))
    assert max(map(len, lines(capsys))) <= 60


def test_what_a_wide_column_does_not_need_is_the_others(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    output.table(("A", "B", "C"), [("1", "b" * 100, "c" * 10)], wide=("B", "C"))
    assert lines(capsys)[1] == f"1  {'b' * 44}…  {'c' * 10}"


def test_names_that_their_ends_tell_apart_keep_them(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    names = [
        "torch/optim/adam.py(347): _single_tensor_adam",
        "torch/漢字漢字/漢字漢字/a.py(1): step",
        "ProfilerStep#10" + "1" * 20,
        "replica_4/encoder/layer_5/dropout/RandomUniform",
    ]
    output.table(("NAME",), [(name,) for name in names], wide=("NAME",))
    cut = lines(capsys)[1:]
    assert all(cell_len(text) <= 30 and text.startswith("…") for text in cut)
    assert [name.endswith(text[1:]) for name, text in zip(names, cut, strict=True)] == [True] * 4
    assert cut[0] == "….py(347): _single_tensor_adam"


def test_programs_of_python_are_told_apart_by_their_files(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "24")
    commands = [
        "python /srv/jobs/mine/train.py",
        "python3.12 -u jobs/mine/evaluate.py --epochs 90",
        "python -m torch.distributed.run train.py",
        "python -c print('a/b') and a long text",
        "python /srv/a.py",
    ]
    output.table(("COMMAND",), [(command,) for command in commands], wide=("COMMAND",))
    assert lines(capsys)[1:] == [
        "python …/train.py",
        "python3.12 -u …/evaluat…",
        "python -m torch.distrib…",
        "python -c print('a/b')…",
        "python /srv/a.py",
    ]


def test_hostile_names_are_one_line_without_control_characters(capsys):
    output.table(("NAME",), [("a\x1b[31m\nb\t\tc",)], wide=("NAME",))
    assert lines(capsys)[1] == "a\N{REPLACEMENT CHARACTER}[31m b c"


def test_wide_characters_are_counted_as_two(capsys):
    output.table(("NAME", "N"), [("漢字", "1"), ("abcd", "2")])
    assert lines(capsys)[1:] == ["漢字  1", "abcd  2"]


def test_counted():
    assert output.counted(1, "event") == "1 event"
    assert output.counted(12_000, "event") == "12,000 events"


def test_a_column_that_may_give_way_takes_no_more_than_it_needs(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    output.table(("JOB", "N", "COMMAND"), [("-", "1", "c" * 100)], wide=("JOB", "COMMAND"))
    head, row = lines(capsys)
    assert head.startswith("JOB  N  COMMAND")
    assert 38 <= len(row) <= 40


def test_columns_of_dashes_go_first_where_there_is_no_room(capsys, monkeypatch):
    rows = [("1", "-", "ready", "c" * 100)]
    monkeypatch.setenv("COLUMNS", "24")
    output.table(("PID", "GPU", "STATE", "COMMAND"), rows, wide=("COMMAND",))
    head, row = lines(capsys)
    assert head.split() == ["PID", "STATE", "COMMAND"]
    assert len(row) <= 24
    monkeypatch.setenv("COLUMNS", "80")
    output.table(("PID", "GPU", "STATE", "COMMAND"), rows, wide=("COMMAND",))
    assert lines(capsys)[0].split() == ["PID", "GPU", "STATE", "COMMAND"]


def test_spare_columns_give_way_one_by_one_and_are_named(capsys, monkeypatch):
    def printed(width):
        monkeypatch.setenv("COLUMNS", str(width))
        output.table(("AVG", "MEM", "NAME"), [("12", "34", "n" * 50)], wide=("NAME",), spare=("MEM", "AVG"), least=20)
        said = capsys.readouterr()
        head, row = said.out.splitlines()
        assert len(row) <= width
        return head.split(), said.err

    assert printed(30) == (["AVG", "MEM", "NAME"], "")
    assert printed(29) == (["AVG", "NAME"], "No room for MEM: a wider terminal shows more.\n")
    assert printed(24) == (["NAME"], "No room for MEM, AVG: a wider terminal shows more.\n")


def test_columns_that_are_told_apart_by_their_end_keep_it(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    paths = ["Step > aten::conv > aten::convolution", "Step > void gemm<float, 128, 32>(int)", "gemm<float, 128>(int)"]
    output.table(("PATH",), [(path,) for path in paths], wide=("PATH",), ends=("PATH",))
    assert lines(capsys)[1:] == ["…> aten::convolution", "void gemm<float, 12…", "gemm<float, 128>(in…"]


def test_a_number_stays_with_its_unit(monkeypatch):
    monkeypatch.setenv("COLUMNS", "24")
    assert output.wrapped("waterfall lead 49.40 ms, decode 6.77 MB, 2 % of it", hang=2).splitlines() == [
        "waterfall lead 49.40 ms,",
        "  decode 6.77 MB, 2 % of",
        "  it",
    ]
    assert output.wrapped("of the window as lead 6.77 ms", hang=2).splitlines() == [
        "of the window as lead",
        "  6.77 ms",
    ]


def test_json_of_names_that_are_no_unicode(capsys: pytest.CaptureFixture[str]) -> None:
    emit_json({"name": "ü\ud800"})
    assert json.loads(capsys.readouterr().out) == {"name": "ü\ud800"}
    emit_json({"name": "ü"})
    assert capsys.readouterr().out == '{"name": "ü"}\n'


@pytest.mark.parametrize("letter", ["\x7f", "\x9b", "\x85", "\u202e", "\u2028", "\U000e0001"])
def test_a_terminal_obeys_no_json(capsys, letter):
    emit_json({letter: [f"ü{letter}31m"]})
    text = capsys.readouterr().out.rstrip("\n")
    assert text.isprintable()
    assert "ü" in text
    assert json.loads(text) == {letter: [f"ü{letter}31m"]}


@pytest.mark.parametrize(
    "tell", [output.say, lambda text: app._report(ClientError(text), as_json=False)], ids=["say", "report"]
)
def test_remarks_and_errors_move_no_cursor(capsys, tell):
    tell("there is no thread 'a\x1b[2J\x9b2J\r'; there are:\n\tmain")
    err = capsys.readouterr().err
    assert not {"\x1b", "\x9b", "\r"} & set(err)
    assert err.endswith("there are:\n\tmain\n")


def test_a_file_is_written_through_no_link_that_others_have_put_there(tmp_path):
    theirs = tmp_path / "theirs"
    theirs.write_bytes(b"kept")
    (tmp_path / f".t.svg.{os.getpid()}.part").symlink_to(theirs)
    assert into_file(iter([b"<svg", b"/>"]), tmp_path / "t.svg") == 6
    assert (tmp_path / "t.svg").read_bytes() == b"<svg/>"
    assert theirs.read_bytes() == b"kept"
    assert len([*tmp_path.iterdir()]) == 3


def test_a_device_a_pipe_and_a_link_of_the_system_stay_what_they_are(tmp_path: Path) -> None:
    """`-o /dev/null` by root made a file of it for everybody on the host."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    # Not of /dev itself: root runs tests, too.
    for path in (tmp_path / "pipe", tmp_path / "folder", Path("/proc/self/fd/1")):
        with pytest.raises(UsageError, match="no file, and none takes its place"):
            into_file(iter([b"x"]), path)
    assert (tmp_path / "pipe").is_fifo()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    into_file(iter([b"x"]), tmp_path / "link")
    assert (tmp_path / "link").read_bytes() == b"x"
    assert not (tmp_path / "elsewhere").exists()
