"""The contract between client and daemon: generated messages and stubs."""
