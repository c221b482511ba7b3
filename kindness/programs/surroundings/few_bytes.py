"""RLIMIT_AS a little above what the program needs."""

import os
import resource
import sys

from place import again

resource.setrlimit(resource.RLIMIT_AS, (160 << 20, 160 << 20))
os.execv(sys.executable, again())
