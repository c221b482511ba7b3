"""What `profctl diff --fail-above` fails on."""

import pytest
from profclient.cli.commands.diff import _print, _share, exceeding, without_modules
from profclient.errors import UsageError


def row(change, delta, share, noise=None):
    return {"change": change, "delta_ns": delta, "share": share, "noise_ns": noise}


@pytest.mark.parametrize(
    ("line", "fails"),
    [
        (row("slower", 60, 0.06), True),
        (row("slower", 40, 0.04), False),
        (row("slower", 60, 0.06, noise=10), True),
        (row("new", 60, 0.06), True),
        (row("new", 60, 0.06, noise=70), False),  # seldom, and it may be chance
        (row("new", 60, None), False),
        (row("faster", -60, -0.06), False),
        (row("same", 60, 0.06, noise=70), False),
    ],
)
def test_what_fails(line, fails):
    assert bool(exceeding({"totals": [], "rows": [line]}, 0.05)) is fails
    assert bool(exceeding({"totals": [line], "rows": []}, 0.05)) is fails


def test_shares():
    assert [_share(text) for text in ("5%", " 0.5 % ", "0.05", "0")] == [0.05, 0.005, 0.05, 0.0]
    for wrong in ("", "%", "much", "-1%", "nan", "inf"):
        with pytest.raises(UsageError):
            _share(wrong)


def compared(name, calls, path=None):
    """A row with calls in A and in B, of as many digits as there are."""
    times = {"change": "slower", "a_ns": 455_000, "b_ns": 15_980_000, "delta_ns": 15_525_000, "noise_ns": 36_310_000}
    counts = {"a_count": calls[0], "b_count": calls[1]}
    return {"name": name, "path": path, "device_type": "CUDA", "ratio": 35.116, **times, **counts}


def printed(capsys, rows, by="name"):
    _print({"by": by, "per": "step", "totals": [], "rows": rows, "truncated": False, "message": None}, 20)
    return capsys.readouterr()


def test_what_differs_has_the_room_on_a_narrow_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    leaves = [f"aten::convolution_backward_{end}" for end in ("input", "weight")]
    rows = [compared(leaf, (10_910.167, 8_777.667), ["ProfilerStep*", "autograd::engine", leaf]) for leaf in leaves]
    for by in ("name", "path"):
        said = printed(capsys, [{**row, "path": row["path"] if by == "path" else None} for row in rows], by)
        head, *lines = said.out.splitlines()
        assert max(map(len, lines)) <= 80
        assert [line.endswith(leaf) for line, leaf in zip(lines, leaves, strict=True)] == [True, True]
        assert "NOISE" not in head
        assert "No room for CALLS, NOISE" in said.err


def test_calls_per_step_have_three_digits_at_most_behind_which_they_are_whole(capsys):
    rows = [compared("many", (10_910.167, 8_777.667)), compared("few", (0, 1.16667)), compared("same", (6, 6))]
    many, few, same = printed(capsys, rows).out.splitlines()[1:]
    assert "  10,910 to 8,778  " in many
    assert "  0 to 1.17  " in few
    assert " 6  CUDA" in same


def test_a_diff_by_module_says_which_trace_has_none(capsys):
    bare, both, old = compared("(no module)", (9, 9)), compared("Net.layer", (1, 2)), compared("Net.gone", (1, 0))
    assert without_modules([bare]) == ["A", "B"]
    assert without_modules([bare, old]) == ["B"]
    assert without_modules([bare, both]) == []
    assert "in A and B says which module it ran in: `profctl start --stacks --modules`" in (
        printed(capsys, [bare], "module").err
    )
    assert "module" not in printed(capsys, [bare, both], "module").err


@pytest.mark.parametrize("path", [None, ["step", "train.py: fit"]], ids=["by name", "by path"])
def test_a_diff_says_where_one_recording_alone_has_python_calls(capsys, path):
    """Their time is in no row of the other, so that it looks like a slower B."""
    function, operator = compared("train.py: fit", (0, 3), path), compared("aten::mm", (3, 3), path and ["aten::mm"])
    assert "Python calls were recorded in B alone (--stacks)" in printed(capsys, [function, operator]).err
    both = compared("train.py: fit", (1, 3), path)
    assert "Python calls" not in printed(capsys, [both, operator]).err
