"""Iterates sys.modules without a copy, as reloaders and error reporters do."""

import sys

from turns import turns

for _ in turns():
    for _ in range(50):
        for module in sys.modules.values():
            getattr(module, "__file__", None)
