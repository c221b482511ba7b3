"""Files that were asked for and may still come: whose are forgotten, and what a restarted daemon knows."""

from __future__ import annotations

from pathlib import Path

from profd import limits
from profd.sources.kineto.leftovers import Leftover, Leftovers

ALICE, MALLORY, BOB = 7, 8, 9


def asked(uid: int, number: int, directory: str = "/tmp") -> Leftover:
    return Leftover(number, 1, uid, directory, f"profd-{uid}_{number}.json", 0.0)


def again(state: Path) -> list[Leftover]:
    """As the next daemon knows them."""
    leftovers = Leftovers(state)
    leftovers.load()
    return leftovers.items()


def test_nobody_s_are_pushed_out_by_others(tmp_path: Path) -> None:
    """GIVEN more files of one user than are remembered WHEN others have some THEN that user's oldest are forgotten."""
    leftovers = Leftovers(tmp_path)
    leftovers.add(asked(ALICE, 1))
    for number in range(limits.KINETO_LEFTOVERS_MAX + 5):
        leftovers.add(asked(MALLORY, number))
    leftovers.add(asked(BOB, 1))
    kept = again(tmp_path)
    assert len(kept) == limits.KINETO_LEFTOVERS_MAX
    assert [item.uid for item in (kept[0], kept[-1])] == [ALICE, BOB]
    assert [kept[1].pid, kept[-2].pid] == [7, limits.KINETO_LEFTOVERS_MAX + 4]


def test_long_paths_of_one_user_make_nobody_s_unknown(tmp_path: Path) -> None:
    """A path of 4095 bytes, as long as the kernel has them: of so many the file was read in part, which is nothing."""
    leftovers = Leftovers(tmp_path)
    leftovers.add(asked(ALICE, 1))
    deep = ("/" + 254 * "d") * 16 + "/" + 14 * "d"
    assert len(deep) == 4095
    for number in range(1, limits.KINETO_LEFTOVERS_MAX):
        leftovers.add(asked(MALLORY, number, deep))
    assert again(tmp_path) == leftovers.items()
