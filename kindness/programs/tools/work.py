"""What the tools look at: functions whose calls can be counted, on two threads, for argv[1] turns."""

import sys
import threading
import time


def leaf(number):
    """Called three times by `branch`."""
    return number * number


def branch(number):
    """Called once a turn and thread."""
    return leaf(number) + leaf(number + 1) + leaf(number + 2)


def turns(count, totals):
    """One thread's turns."""
    totals.append(sum(branch(number) for number in range(count)))


def main():
    """Both threads, several times, with rests."""
    totals = []
    for _ in range(int(sys.argv[1])):
        other = threading.Thread(target=turns, args=(50, totals))
        other.start()
        turns(50, totals)
        other.join()
        time.sleep(0.02)
    print("ok", len(totals), sum(totals))


if __name__ == "__main__":
    main()
