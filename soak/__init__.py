"""Kills at random moments while known events are recorded, and long use. See docs/reliability.md."""
