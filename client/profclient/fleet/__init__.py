"""One capture of many hosts, each with a daemon of its own; docs/hosts.md is for its users.

`hostlist` reads names of hosts, `machine` decides (pure), `clocks` agrees on a moment (pure), `link` and `host` reach a
host, `drive` does what the machine says.
"""
