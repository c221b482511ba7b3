"""One moment by clocks that differ."""

from hypothesis import given
from hypothesis import strategies as st
from profclient.fleet.clocks import SECOND, Clock, apart_ns, boundary_ns, boundary_of, message, reference_ns, start_ns
from profproto.v1 import capture_pb2 as pb

MS = 1_000_000


def clock(offset_ns: int, uncertainty_ns: int = MS) -> Clock:
    return Clock(offset_ns, uncertainty_ns, None, None)


def test_a_boundary_is_a_whole_second_far_enough_ahead():
    assert boundary_ns(10 * SECOND + 1, SECOND, 0) == 12 * SECOND
    assert boundary_ns(10 * SECOND, SECOND, 0) == 11 * SECOND


def test_what_may_be_an_error_of_the_measurement_moves_nothing():
    """GIVEN clocks that agree to within what asking them took THEN each gets the very same moment."""
    clocks = {"a": clock(3 * MS, 4 * MS), "b": clock(-2 * MS, 2 * MS), "c": clock(40 * MS, 60 * MS)}
    reference = reference_ns(clocks)
    assert {start_ns(SECOND, one, reference) for one in clocks.values()} == {SECOND}


def test_the_moment_is_known_of_each_host_afterwards():
    """GIVEN a host whose clock was followed, and one that said what may be an error THEN both tell the same moment."""
    clocks = {"far": clock(90 * SECOND), "near": clock(3 * MS, 4 * MS), "other": clock(0)}
    reference = reference_ns(clocks)
    for one in clocks.values():
        told = pb.Options(start_at_ns=start_ns(7 * SECOND, one, reference))
        capture = pb.Capture(options=told, fleet=pb.Fleet(clock=message(one, reference)))
        assert boundary_of([pb.Capture(), capture]) == 7 * SECOND
    assert boundary_of([pb.Capture(options=pb.Options(begin_step=3))]) is None


@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(0, 5)), min_size=1, max_size=9), st.integers(-9, 9))
def test_property_measurements_that_are_right_move_nothing(measured, true):
    """GIVEN clocks that all show the same, measured as wrongly as their uncertainty says THEN none is moved."""
    shift = true * SECOND
    clocks = {
        str(at): clock(shift + wrong * SECOND, (abs(wrong) + more) * SECOND)
        for at, (wrong, more) in enumerate(measured)
    }
    reference = reference_ns(clocks)
    assert [apart_ns(one, reference) for one in clocks.values()] == [0] * len(clocks)


def test_a_busy_client_is_wrong_of_most_in_the_same_direction():
    """GIVEN equal clocks, most of them asked slowly THEN the quick one is not taken for one that is ahead."""
    clocks = {str(at): clock(-200 * MS, 210 * MS) for at in range(9)} | {"quick": clock(0, MS)}
    reference = reference_ns(clocks)
    assert [apart_ns(one, reference) for one in clocks.values()] == [0] * 10


def test_a_clock_that_is_off_by_minutes_is_followed():
    clocks = {"a": clock(0), "b": clock(0), "c": clock(-90 * SECOND)}
    reference = reference_ns(clocks)
    assert apart_ns(clocks["c"], reference) == -90 * SECOND
    assert start_ns(100 * SECOND, clocks["c"], reference) == 10 * SECOND
    assert start_ns(100 * SECOND, clocks["b"], reference) == 100 * SECOND


def test_it_is_ours_that_is_wrong_where_all_others_agree():
    """GIVEN a client whose clock is 10 s behind THEN hosts are not moved apart, and the moment is ahead of them."""
    clocks = {"a": clock(10 * SECOND), "b": clock(10 * SECOND + MS)}
    boundary = boundary_ns(100 * SECOND, 2 * SECOND, reference_ns(clocks))
    assert boundary >= 112 * SECOND
    assert {start_ns(boundary, one, reference_ns(clocks)) for one in clocks.values()} == {boundary}
