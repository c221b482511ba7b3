"""Event chunks from arenas to the journal: what the source `sdk` uses of it.

    intake = await ingest.expect(incarnation, epoch, uid, directory)
    drain = streamers.drain(uid, incarnation, epoch, fd)
    ...                                   # the target records, the streamer drains
    await drain.finish(target_died=False) # after STOPPED, EOF, or a bounded wait for either
    await intake.finished.wait()          # bounded by the caller
    intake.close()

`Ingest.expect` opens the journal file `directory/chunks.pfc` (it goes on with
one that is there: a torn tail is cut) and takes chunks of (incarnation, epoch)
from connections of `uid`, root and the admin group; chunks of anything else are
rejected as foreign. Exhausted if the file cannot be made, BadInput if that
incarnation is expected already. `Intake`:

- `path`, `events`, `bytes`, `chunks`: where, and what is acked so far;
- `finished`: an asyncio.Event, set once the Finish of the stream was taken and
  everything before it is written;
- `losses`: list of capture.model.Loss: what the streamer's Finish said was lost
  (stages target, streamer) and what ingest itself refused or misses (stage
  ingest);
- `recorded`: events that the target says it recorded (of Finish), None before;
- `failure`: a sentence once nothing more can be written (disk full), else "";
- `close()`: idempotent; the file is complete and no chunk is taken any more.

`Streamers.drain` duplicates `fd` (the caller keeps and closes its own), hands
it to the streamer of that uid (started if there is none) and returns at once.
A streamer that dies is started again and gets every arena that is not
finished; the chunks it had not freed come again and are removed as duplicates.
`Drain`:

- `await finish(target_died=)`: the target writes no more (or must be treated
  so: it is stopped, or gone). The streamer takes OPEN and ORPHAN chunks up to
  their count as well, sends what is left and then Finish. Returns when the
  streamer has said that it is done, or cannot be (`problem` says why); safe to
  cancel and to call again;
- `problem`: a sentence, "" if all went well;
- `ended`: an asyncio.Event: nothing more will come, finished or not;
- `restarts`: how often its streamer had to be started again;
- `close()`: idempotent; the streamer lets go of the arena whatever is left.

`Streamers.why_not()` says beforehand whether streamers can run.

Parts: `chunk` (the header, checked), `ledger` (what has been seen; pure),
`journal_file`, `sink` (both together), `writer` (the threads), `intake`;
`streamers`, `streamer_process`, `arena` (its counters, without a streamer);
`pushed` (streams that no capture asked for).
"""
