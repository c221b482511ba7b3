"""What `profctl diff --fail-above` fails on."""

import pytest
from profclient.cli.commands.diff import _share, exceeding
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
