"""Causes with evidence: what costs time in a trace, by rules that would rather say nothing (docs/answers.md)."""
