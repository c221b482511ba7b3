"""One module per shard; each has `run(ledger, deadline, seed, name)`."""
