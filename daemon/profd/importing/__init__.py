"""From raw files to a stored trace."""
