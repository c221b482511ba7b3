"""A stored trace on disk: segments, side files, what it says of itself; how they are written and read."""
