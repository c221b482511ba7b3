"""What tests share: real processes to trace, traces written by hand, conditions to wait for."""
