"""Untrusted bytes to EventTable batches. Runs only in workers."""
