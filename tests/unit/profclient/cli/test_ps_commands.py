"""Commands as `profctl ps` prints them."""

from __future__ import annotations

import pytest
from profclient.cli.output import short


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("/opt/a b/venv/bin/python3.11 -m train", "/opt/a b/venv/bin/python3.11 -m train"),
        ("/opt/venv/bin/python demo/train.py --lr 1", "python demo/train.py --lr 1"),
        ("/opt/venv/bin/python", "/opt/venv/bin/python"),
        ("/usr/sbin/nginx -g", "/usr/sbin/nginx -g"),
    ],
    ids=["space", "script", "alone", "other"],
)
def test_an_interpreter_has_its_name_alone(command: str, shown: str) -> None:
    assert short(command) == shown
