"""Instead of the launcher of samplers: becomes the command at once, for scripts that play py-spy's part."""

import os
import sys

if __name__ == "__main__":
    with open(0, "rb") as told:
        told.read()
    os.execv(sys.argv[9], sys.argv[9:])
