"""Bytes in a second."""

from profclient.fleet.pace import Pace


def test_pieces_have_their_time_and_pauses_are_not_made_up_for():
    now = [100.0]
    pace = Pace(1000, lambda: now[0])
    assert [pace.wait(500), pace.wait(500)] == [0.5, 1.0]  # of two hosts at once
    now[0] = 101.0
    assert pace.wait(250) == 0.25
    now[0] = 200.0
    assert pace.wait(1000) == 1.0
