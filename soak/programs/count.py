"""A target that counts: every value below the shared number has been recorded, if it was being recorded."""

import mmap
import os
import sys
import threading
import time

import profclient

profclient.attach(quiet=True)
shared = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 8)
done = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), done.set()), daemon=True).start()
print("ready", flush=True)
at = checksum = 0
while not done.is_set():
    profclient.counter("n", at)
    checksum = (checksum * 31 + at) % 1000003
    at += 1
    shared[:8] = at.to_bytes(8, "little")
    if at % 20 == 0:
        time.sleep(0.002)
again = 0
for value in range(at):
    again = (again * 31 + value) % 1000003
print("ok" if again == checksum else f"{checksum} instead of {again}", flush=True)
