"""A child that is stopped and continued again and again while it works."""

import os
import signal
import subprocess
import sys
import time

from place import again

child = subprocess.Popen(again())
while child.poll() is None:
    os.kill(child.pid, signal.SIGSTOP)
    time.sleep(0.1)
    os.kill(child.pid, signal.SIGCONT)
    time.sleep(0.2)
sys.exit(child.returncode)
