"""The call tree as a flame graph: boxes in `layout`, drawn by `svg` for a browser and by `terminal` for a terminal."""
