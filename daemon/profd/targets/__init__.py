"""Which processes there are, and what can be known of them from outside."""
