"""A program that closes every descriptor that it does not know, again and again, and uses the numbers itself."""

import os

from place import TURNS, work

total = 0
for _ in range(10):
    os.closerange(3, 1024)
    own = [os.open("/dev/null", os.O_RDWR) for _ in range(10)]
    total += work(TURNS // 10)
    for descriptor in own:
        os.fstat(descriptor)
        os.write(descriptor, b"x")
        os.close(descriptor)
print("ok", total)
