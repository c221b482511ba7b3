"""exec into other programs and back: a shell, a Python without profclient's folder on its path, Python again."""

import os

from place import TURNS, again, work

before = work(TURNS // 2)
print("before exec", before, flush=True)
os.execv("/bin/sh", ["/bin/sh", "-c", "exec " + " ".join(again())])
