"""Root that becomes nobody in the middle of the program, as servers do."""

import os
import sys

from place import TURNS, work

if os.geteuid() != 0:
    sys.exit("skip: needs root")
before = work(TURNS // 2)
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
print("ok", before + work(TURNS // 2), os.getuid())
