"""What earlier builds have left, and how it was made: README.md."""
