"""Attached processes: who they are, and the talk with the agent in each (docs/agent-protocol.md)."""
