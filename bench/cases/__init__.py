"""One module a question; each prints rows of what, ours, peer, floor and bar."""
