"""The daemon of profd and its trace engine."""

__version__ = "0.1.0"
