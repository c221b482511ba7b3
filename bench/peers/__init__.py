"""What the benches run of others, each in a process (and environment) of its own."""
