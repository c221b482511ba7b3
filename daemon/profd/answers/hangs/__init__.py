"""What ranks that stand still wait for, by what their flight recorders remember."""
