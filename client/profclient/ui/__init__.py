"""`profctl ui`: a page on loopback for one user, served with that user's rights (docs/ui.md).

`gate` says who may ask, `peers` what the kernel says of a connection, `server` takes connections, `handler` answers
requests, `asking` puts questions to a daemon or a store, and `static/` is the page.
"""
