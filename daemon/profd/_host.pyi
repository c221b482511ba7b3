"""What the daemon asks of the kernel, where Python would wait or be too slow (native/host)."""
