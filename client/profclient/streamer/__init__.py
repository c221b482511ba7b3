"""The streamer: a process beside the targets of one uid that moves events from their arenas to the daemon.

Everything that could hurt a job (gRPC, protobuf, compression, threads) is here
and not in it. The daemon starts one per uid (`profd.attached.ingest.streamer`), and
speaks with it over a SEQPACKET socket (`link`); chunks go over gRPC (`stream`).
A chunk of an arena is freed when its ack has come: whatever happens to this
process, another goes on from there.
"""
