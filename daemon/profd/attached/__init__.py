"""Attached processes: how they are known and armed (agents), how their events arrive (ingest), the source (sdk)."""
