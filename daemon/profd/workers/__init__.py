"""A small pool of worker processes: everything that decodes, sorts, compresses or queries runs there."""
