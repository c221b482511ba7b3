"""A program that sets and removes a profile function and a trace function of its own; each call is counted."""

import sys
import threading

from tool import TURNS
from work import turns

calls = []


def own(frame, event, argument):
    """Counts calls of `leaf`."""
    if frame.f_code.co_name == "leaf" and event == "call":
        calls.append(1)
    return own


totals, counts = [], []
for turn in range(int(TURNS)):
    calls.clear()
    switch = sys.setprofile if turn % 2 else sys.settrace
    switch(own)
    turns(20, totals)
    switch(None)
    (threading.setprofile if turn % 2 else threading.settrace)(own)
    thread = threading.Thread(target=turns, args=(20, totals))
    thread.start()
    thread.join()
    (threading.setprofile if turn % 2 else threading.settrace)(None)
    counts.append(len(calls))
    if own in (sys.getprofile(), sys.gettrace()):  # on 3.11 the tracer's shows while calls are recorded
        sys.exit("a profile function is still there")
print("ok", set(counts), sum(totals))
