"""The service on a host: its settings, its instance lock, its socket files, and what doctor finds."""
