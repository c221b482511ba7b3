"""Derived lines: what the kernels of an XSpace tell of steps, modules, name scopes and operators (docs/timeline.md)."""
