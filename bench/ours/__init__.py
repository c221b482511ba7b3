"""What the benches run of ours, each in a process of its own."""
