"""The GPUs of the host: what the driver says of them. No driver: absent, never zero."""
