"""The source `sdk`: events that attached processes record themselves."""
