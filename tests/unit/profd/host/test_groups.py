"""Groups that settings name: one that is not there is no group of nobody."""

from __future__ import annotations

import grp
import os

import pytest
from profd.errors import BadInput
from profd.host.groups import gid_of


def test_a_group_that_is_there() -> None:
    gid = os.getgid()
    assert gid_of("admin_group", grp.getgrgid(gid).gr_name) == gid


def test_an_empty_setting_is_no_group() -> None:
    assert gid_of("admin_group", "") is None


def test_an_unknown_one_is_named_with_its_setting_and_the_way_out() -> None:
    with pytest.raises(BadInput, match=r"admin_group: there is no group 'no-such'.*groupadd no-such"):
        gid_of("admin_group", "no-such")
