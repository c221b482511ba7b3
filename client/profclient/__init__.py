"""What runs in people's shells and processes. Light: no numpy, pyarrow, duckdb."""
