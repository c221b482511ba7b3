"""Event chunks on their way from a target's arena into the journal of its capture.

    target ── arena ──► streamer (own process, the target's uid) ── gRPC ──► intake ──► DIRECTORY/stream.pfc

What a source does with it, everything on the event loop:

    intake = await ingest.expect(incarnation, epoch, uid, directory)    # before ARM; goes on with a file that is there
    drain = streamers.drain(uid, gid, incarnation, epoch, arena_fd)     # after ARMED; duplicates the descriptor
    ...
    why = await drain.finish(target_died=False)                         # after STOPPED, or the death of the target
    await intake.close()                                                # flushed to the disk; no chunk is taken any more
    intake.path, intake.events, intake.losses                           # -> RawFile(path, "chunks"), Recording.lost

`drain.failed` (a sentence, empty while all is well) and `drain.ended` (asyncio.Event) say when nothing more will come
although nobody asked to finish; `intake.finished` (asyncio.Event) is set when the streamer has told everything. Both are
to be closed by whoever asked for them: `drain.drop()` ends a drain whose capture was cancelled. Parts:

- `ledger`: which chunks have been seen and what is missing. Pure.
- `chunk`: the header of a chunk, checked.
- `journal_file`: the append-only file; torn tails are cut.
- `writer`: the thread that checks crcs and writes; another one syncs.
- `intake`: one armed incarnation, and all of them (`Ingest`).
- `streamers`: the streamer processes, started, supervised, restarted.
"""
