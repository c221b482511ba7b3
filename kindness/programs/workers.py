"""Threads of a pool, locals of threads, locks and conditions."""

import threading
from concurrent.futures import ThreadPoolExecutor

from turns import expect, turns

own = threading.local()
lock = threading.Lock()


def work(number):
    """Its own state must stay its own."""
    own.count = getattr(own, "count", 0) + 1
    with lock:
        return sum(range(number)), own.count > 0


for _ in turns():
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(work, range(100)))
    expect("results of a pool", results, [(sum(range(number)), True) for number in range(100)])
    barrier, passed = threading.Barrier(5), []
    threads = [threading.Thread(target=lambda b=barrier, p=passed: p.append(b.wait() >= 0)) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect("passed the barrier", passed, [True] * 5)
