"""Children by fork, in the main thread and beside others, by subprocess and by multiprocessing."""

import multiprocessing
import os
import subprocess
import sys
import warnings

from turns import expect, turns

warnings.simplefilter("error")  # a warning of threads that only we have would end it


def square(number):
    """In a child."""
    return number * number


def by_fork():
    """What a child has written to a pipe."""
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        os.write(writes, str(sum(square(number) for number in range(100))).encode())
        os._exit(7)
    os.close(writes)
    with os.fdopen(reads) as pipe:
        said = pipe.read()
    return said, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def by_subprocess():
    """A Python that prints, and whether it said anything else."""
    done = subprocess.run([sys.executable, "-c", "print(6 * 7)"], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def by_multiprocessing():
    """Processes by fork, joined."""
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=square, args=(number,)) for number in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    return [child.exitcode for child in children]


if __name__ == "__main__":
    for number in turns():
        expect("a fork", by_fork(), ("328350", 7))
        expect("processes", by_multiprocessing(), [0, 0, 0])
        if number % 5 == 0:
            expect("a subprocess", by_subprocess(), (0, "42\n", ""))
