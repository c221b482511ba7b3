"""joblib: loky's processes, which outlive calls, and threads."""

import sys

from joblib import Parallel, delayed


def cube(number):
    """In a worker."""
    return number**3


if __name__ == "__main__":
    total = 0
    for turn in range(int(sys.argv[1])):
        backend = "loky" if turn % 2 else "threading"
        total += sum(Parallel(n_jobs=3, backend=backend)(delayed(cube)(number) for number in range(50)))
    print("ok", total)
