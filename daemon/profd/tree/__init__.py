"""Parents, depth, self time and launch links: thin Python over the native engine."""
