"""Captures: what was asked for, the state machine per target, and the manager that drives it."""
