"""What one user may have of what all share: places, rates, lines of the log."""
