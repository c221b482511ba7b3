"""What is recorded while processes are killed: each lane makes captures of one kind, one after the other."""
