"""The relay: one small process of the user's on a host, which leads a client elsewhere to that host's daemon.

It speaks the protocol of docs/relay-protocol.md on standard input and output, whatever carried these there. It imports
neither gRPC nor protobuf: it forwards their bytes.
"""
