"""Benchmarks: ours, the peer and a bare floor program side by side in one run."""
