"""The commands, one module each (or one per noun)."""
