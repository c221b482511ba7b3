"""What runs in people's shells and processes. Light: no numpy, pyarrow, duckdb."""

from profclient.agent import attach, detach

__all__ = ["attach", "detach"]
