"""How long a host is waited for."""

import pytest
from profclient.fleet.ends import AHEAD_MAX_NS, ENDS_NS, SECOND, WINDOW_MAX_NS, longest_ns
from profproto.v1 import capture_pb2 as pb

NOW = 100 * SECOND
FAR = (1 << 63) - 1


@pytest.mark.parametrize(
    ("options", "beyond"),
    [
        (pb.Options(duration_ns=SECOND), SECOND),
        (pb.Options(duration_ns=SECOND, start_at_ns=NOW + 7 * SECOND), 8 * SECOND),
        (pb.Options(duration_ns=SECOND, start_at_ns=1), SECOND),
        (pb.Options(iterations=5), WINDOW_MAX_NS),
        (pb.Options(duration_ns=SECOND, collect_timeout_ns=3 * SECOND), 4 * SECOND),
        # a host may claim anything
        (pb.Options(duration_ns=FAR, start_at_ns=FAR, collect_timeout_ns=FAR), WINDOW_MAX_NS + 2 * AHEAD_MAX_NS),
        (pb.Options(duration_ns=-FAR, start_at_ns=-FAR, collect_timeout_ns=-FAR), WINDOW_MAX_NS),
    ],
)
def test_the_window_and_what_comes_after_it(options, beyond):
    assert longest_ns(options, NOW) == beyond + ENDS_NS
