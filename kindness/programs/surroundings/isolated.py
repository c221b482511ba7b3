"""Pythons that ignore their environment or `site`: -I, -S, -E, and all of them."""

import subprocess
import sys

from place import again

for flags in (["-I"], ["-S"], ["-E"], ["-I", "-S", "-E"]):
    done = subprocess.run([sys.executable, *flags, *again()[1:]], capture_output=True, text=True, check=False)
    print(flags, done.returncode, done.stdout.strip(), done.stderr)
print("ok")
