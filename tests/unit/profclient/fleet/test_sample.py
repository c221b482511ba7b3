"""Some ranks of many."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profclient.fleet.sample import spread


@pytest.mark.parametrize(
    ("hosts", "count", "chosen"),
    [
        (8, 8, {"n0": [0], "n1": [9], "n2": [18], "n3": [27], "n4": [36], "n5": [45], "n6": [54], "n7": [63]}),
        (2, 4, {"n0": [0, 4], "n1": [9, 13]}),
        (4, 2, {"n0": [0], "n2": [18]}),
        (1, 3, {"n0": [0, 2, 5]}),
    ],
)
def test_of_hosts_with_eight_ranks(hosts, count, chosen):
    assert spread({f"n{at}": range(8 * at, 8 * at + 8) for at in range(hosts)}, count) == chosen


@given(st.lists(st.lists(st.integers(0, 40), max_size=9), max_size=6), st.integers(0, 40))
def test_property_so_many_each_once_where_it_is(ranks, count):
    there = {f"n{at}": some for at, some in enumerate(ranks)}
    chosen = spread(there, count)
    flat = [rank for some in chosen.values() for rank in some]
    assert len(flat) == len(set(flat)) == min(count, len({rank for some in ranks for rank in some}))
    assert all(set(some) <= set(there[host]) for host, some in chosen.items())
