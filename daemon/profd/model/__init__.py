"""The words of the system as plain values. Nothing here does I/O, and nothing here imports another room."""
