"""Every limit on untrusted input, in one place. Bytes, counts and seconds."""

from __future__ import annotations

from typing import Final

MiB: Final = 1 << 20
GiB: Final = 1 << 30

# Trace files
TRACE_FILE_BYTES_MAX: Final = 32 * GiB  # on disk
TRACE_INFLATED_BYTES_MAX: Final = 64 * GiB  # after gunzip
TRACE_INFLATE_RATIO_MAX: Final = 400  # above it a gzip file is a bomb (after the first 16 MiB)
TRACE_EVENTS_MAX: Final = 500_000_000
EVENT_BYTES_MAX: Final = 16 * MiB  # one JSON record
JSON_DEPTH_MAX: Final = 64
STRING_BYTES_MAX: Final = 4 * MiB
ARG_KEYS_MAX: Final = 512  # distinct argument keys that get a column; the rest goes to `extra`
DICTIONARY_BYTES_MAX: Final = 512 * MiB  # all strings of one trace
TRACKS_MAX: Final = 200_000  # threads and processes of one trace
OPEN_EVENTS_MAX: Final = 1_000_000  # begins, and their arguments, that wait for an end: ~200 bytes each
METADATA_RECORDS_MAX: Final = 1000  # Chrome "M" records that are kept as they are
DECODE_SLICE_BYTES: Final = 16 * MiB  # JSON text decoded at a time
SEGMENT_ROWS: Final = 1 << 18  # what an import holds at a time: 400 MB at most for 5 million events

# Event chunks (docs/wire-format.md); of their headers see Ingest
CHUNK_BODY_BYTES_MAX: Final = 1 * MiB  # after decompression
CHUNK_WINDOW_LOG_MAX: Final = 23  # of zstd: it takes 8 MiB at most to decompress
CHUNK_SLOTS_MAX: Final = 65_536
CHUNKS_MAX: Final = 2_000_000  # of one file: some 300 bytes each while it is read
CHUNK_BODIES_BYTES: Final = 64 * MiB  # kept between the two passes, some 10 million events: inflating takes 10 ns each
CHUNK_RESYNCS_MAX: Final = 1000  # places in a file where its chunks have to be looked for again

# XSpace (protobuf)
XSPACE_BYTES_MAX: Final = 2 * GiB - 1  # protobuf's own
XSPACE_FIELDS_MAX: Final = 1 << 20  # fields of one message that are kept: planes, lines, metadata
XSPACE_PLANES_MAX: Final = 10_000  # a profile of a whole pod has some hundreds; each is a process and some 50 µs
XSPACE_LINES_MAX: Final = 50_000  # of all planes; each is a thread, and its events a batch of their own: 160 µs
XSPACE_METADATA_ENTRIES_MAX: Final = 2_000_000  # names of events and stats, and stats of planes: some 5 µs each
XSPACE_EVENT_STATS_MAX: Final = 1024
XSPACE_STAT_COLUMNS_MAX: Final = 4096  # names and types of stats in a slice of events; a trace keeps ARG_KEYS_MAX
XSPACE_LEVELS_MAX: Final = 256  # of derived lines: scopes in scopes; deeper ones are left out
XSPACE_ANCESTORS_MAX: Final = 100_000_000  # events looked at above the roots of steps: about a second
XSPACE_NAMING_MAX: Final = 20_000_000  # of those with several above: looked at for names of steps; half a minute
XSPACE_METADATA_BYTES_MAX: Final = 16 * MiB  # HLO protos and the like, kept in meta.json

# Chrome streams in the dialect torch-legacy
LEGACY_TEXT_BYTES_MAX: Final = 128 * MiB  # held whole

# SQLite files (nvprof)
SQLITE_SECONDS: Final = 600.0  # of reading one
SQLITE_TABLES_MAX: Final = 1000
SQLITE_COLUMNS_MAX: Final = 256

# Captures
CAPTURE_TARGETS_MAX: Final = 256
SELECTOR_WORDS_MAX: Final = 1024  # users, jobs, GPUs or ranks that one selector names
CAPTURES_ACTIVE_MAX: Final = 64
CAPTURES_ACTIVE_PER_UID_MAX: Final = 16  # admins may have all
CAPTURES_ACTIVE_RESERVED: Final = 16  # beyond CAPTURES_ACTIVE_MAX, for admins
RECORDED_SECONDS_PER_HOUR: Final = 36_000  # of one user, each process counted: ten of them all the time
CAPTURE_WINDOW_MAX_NS: Final = 10 * 60 * 1_000_000_000
GPU_SAMPLES_MAX: Final = 8192  # of one target: 13 min at ten a second, then half as many; 1.6 kB each and GPU
CAPTURE_ITERATIONS_MAX: Final = 10_000
REQUEST_ID_BYTES_MAX: Final = 128

# Names of users and groups: NSS, which may ask a network
NAMES_WAIT_SECONDS: Final = 0.5  # for one
NAMES_SLOW_SECONDS: Final = 5.0  # in which, behind one that did not come,
NAMES_WAIT_SECONDS_SLOW: Final = 0.02  # no more than this is waited for another
NAMES_AT_ONCE: Final = 32  # threads that wait for a database: of a host whose directory is down
NAMES_KEPT: Final = 4096  # of each database
NAMES_KEPT_SECONDS: Final = 5.0  # in which one is not asked for again
NAMES_SHARE_SECONDS: Final = 5.0  # for all names that a trace is shared with

# Threads for calls of users; root's and the daemon's own have others
CALL_THREADS: Final = 8
CALL_THREADS_PER_UID: Final = 2

# RPC
RPC_MESSAGE_BYTES_MAX: Final = MiB + 4096  # of all that come: gRPC holds as much of each that has not ended
RPC_REQUEST_BYTES_MAX: Final = 64 * 1024  # parsed on the event loop: 0.5 ms for 32,768 empty elements
QUESTION_MESSAGE_BYTES_MAX: Final = 128 * 1024  # SQL_TEXT_BYTES_MAX, and what is beside it
UNPROVED_MESSAGE_BYTES_MAX: Final = 4096  # of health and reflection: a name
SMALL_MESSAGE_BYTES: Final = 4096  # in a stream; each costs the event loop what a large one does
SMALL_MESSAGES_PER_SECOND: Final = 500.0  # of one user, in streams of events; in imports as many; then they wait
SMALL_MESSAGES_BURST: Final = 2000  # 64 processes that are drained every 20 ms for half a second
UNPROVED_MESSAGES_PER_SECOND: Final = 100.0  # beyond the first of a call, of all; then they wait
UNPROVED_MESSAGES_BURST: Final = 500
MEMORY_KEPT_SECONDS: Final = 5.0  # after a large message was refused; then what is free is given back
UNPROVED_MESSAGES_MAX: Final = 64  # of one call: a client asks for each file of our services once
RPC_CHUNK_BYTES: Final = 512 * 1024
ANSWER_BYTES_MAX: Final = 64 * MiB  # of a short answer, that the daemon holds until it is read
ANSWERS_HELD_MIB_PER_UID: Final = 256  # of such answers, whole MiB of each
ANSWERS_HELD_MIB_MAX: Final = 1024
ANSWERS_HELD_MIB_RESERVED: Final = 1024
KEY_AVERAGES_ROWS_MAX: Final = 10_000  # of the call KeyAverages, which makes a message of them; by Query all come
KEY_AVERAGES_BYTES_MAX: Final = 8 * MiB  # the same, as JSON; a client of gRPC takes 4 MiB of it unless told otherwise
KEY_AVERAGES_ROW_BYTES_MAX: Final = 256 * 1024  # one row, which is parsed at once: 10 ms where it is all brackets
SUMMARY_BYTES_MAX: Final = 8 * MiB  # of the call Summary, in one message; by Query it comes in parts
QUESTION_ARGUMENTS_MAX: Final = 64  # of one question, as they come
QUESTION_TEXT_BYTES_MAX: Final = 4096  # of a text among them, where the table says no other
QUESTION_LIST_MAX: Final = 64  # items of a list among them
IMPORT_BYTES_MAX: Final = TRACE_FILE_BYTES_MAX
IMPORT_ASIDE_BYTES: Final = 512 * 1024  # of a file that come at a time while somebody waits for an answer,
IMPORT_ASIDE_SECONDS: Final = 0.02  # and the pause behind them: 25 MB/s are left to it
IMPORT_IDLE_SECONDS: Final = 60.0  # between two messages of an import: a stalled one holds a slot and disk
TOKEN_LIFETIME_SECONDS: Final = 300
METRICS_CONNECTIONS_MAX: Final = 32  # at once; the oldest is closed for one more
METRICS_KEPT_SECONDS: Final = 1.0  # that a page is served again
METRICS_FAULT_CHARACTERS_MAX: Final = 200  # of what such a line says: some of it is the client's
CONTROL_CONNECTIONS_MAX: Final = 1024
CONTROL_CONNECTIONS_PER_UID_MAX: Final = 128
CONTROL_CONNECTIONS_RESERVED: Final = 256  # for root
CONTROL_CONNECTIONS_PER_SECOND: Final = 50.0  # of one user: each has its process looked at
CONTROL_CONNECTIONS_BURST: Final = 200
RECEPTION_WAITING_MAX: Final = 256  # connections that are accepted, and the event loop has not looked at
LISTEN_BACKLOG: Final = 65_535  # connections that nobody has accepted yet; the kernel cuts it to net.core.somaxconn

# The daemon's log
RARE_LINE_SECONDS: Final = 60.0  # between lines about what a fault, or a user, can cause all the time (rare_line.py)

# Fair shares: of one user, of the host, and kept beside for root and admins (docs/security.md)
CONNECTIONS_PER_UID_MAX: Final = 64  # to the gRPC socket: a client has one for all its calls, a streamer, too
CONNECTIONS_MAX: Final = 1024  # 128 KiB of buffers each, while bytes are in them
CONNECTIONS_ANSWERED_PER_UID_MAX: Final = 4  # beyond these that are told why they are refused
CONNECTIONS_ANSWERED_MAX: Final = 64
CONNECTION_BEGIN_SECONDS: Final = 10.0  # from connect() to the first frame of HTTP/2; from a header block to its end
HEADER_BLOCK_BYTES_MAX: Final = 64 * 1024  # of one call, in however many frames: gRPC takes 40 KiB (rpc/server.py)
HEADER_FIELDS_MAX: Final = 128  # of one call: a client of ours sends ten; each can be a byte, and cost as one of 4 KiB
CONNECTION_END_SECONDS: Final = 10.0  # from the end of one side to that of the connection
STREAMS_PER_SECOND: Final = 200.0  # of one user: twice CALLS_PER_SECOND, so that who asks for more is told so
STREAMS_BURST: Final = 1000  # CALLS_BURST, and as many streamers' calls as there are after a restart
STREAMS_HOST_PER_SECOND: Final = 1000.0  # of all but root: the event loop refuses some thousands a second
STREAMS_HOST_BURST: Final = 2000
FRAMES_PER_SECOND: Final = 20_000.0  # of one user: small ones count once, those that are answered ten times
FRAMES_BURST: Final = 100_000
FRAMES_HOST_PER_SECOND: Final = 200_000.0
FRAMES_HOST_BURST: Final = 400_000
CALLS_PER_UID_MAX: Final = 128  # open at once, watches included
CALLS_MAX: Final = 1024
CALLS_RESERVED: Final = 512
CALLS_PER_SECOND: Final = 100.0  # of one user
CALLS_BURST: Final = 500
INGEST_CALLS_PER_UID_MAX: Final = 600  # of streamers: INGEST_EXPECTED_MAX, and some that connect anew
INGEST_CALLS_MAX: Final = 2048
INGEST_CALLS_PER_SECOND: Final = 50.0  # that begin; INGEST_CALLS_PER_UID_MAX after a pause
IMPORTS_PER_UID_MAX: Final = 4  # each holds a file on the store's disk and a message in memory
IMPORTS_MAX: Final = 16
IMPORTS_RESERVED: Final = 8
LOOKS_PER_UID_MAX: Final = 4  # calls that look at every process of the host, at once: each holds a thread
LOOKS_MAX: Final = 32
LOOKS_RESERVED: Final = 32
LOOKS_PER_SECOND: Final = 5.0
LOOKS_BURST: Final = 50
TARGETS_TOLD_PER_SECOND: Final = 2000.0  # processes in answers about captures, of one user; then they wait
TARGETS_TOLD_BURST: Final = 10_000
STACKS_PER_SECOND: Final = 10.0  # processes that `where` looks into, of one user; CAPTURE_TARGETS_MAX after a pause
STACKS_AT_ONCE_PER_UID: Final = 2  # each costs the target a pause of milliseconds and us a process
STACKS_AT_ONCE: Final = 4
STACKS_BYTES_MAX: Final = 32 * MiB  # of the stacks in one answer, as text: 200,000 frames
WHERES_AT_ONCE_PER_UID: Final = 4  # answers of a user that are held while others of its processes are read
WHERES_AT_ONCE: Final = 64
STARTS_PER_SECOND: Final = 2.0  # captures
STARTS_BURST: Final = 16
WISHES_PER_SECOND: Final = 4.0  # requests of a user's programs; each of a host's ranks makes one for a capture
WISHES_BURST: Final = 256
WISH_GATHER_SECONDS: Final = 0.5  # from the first request with a key to the capture of all that gave it
WISH_BATCHES_MAX: Final = 16  # captures of one key on one host
REFUSED_CAPTURES_PER_SECOND: Final = 1 / 60  # that are kept, of one user: more would push out those with traces
REFUSED_CAPTURES_BURST: Final = 4
JOBS_PER_UID_MAX: Final = 16  # questions and imports that run or wait for a worker; captures are not counted
JOBS_MAX: Final = 256
JOBS_RESERVED: Final = 64
UNPROVED_CALLS_MAX: Final = 64  # of health and reflection; one more ends the oldest
RECEIVE_SECONDS: Final = 10.0  # from a call to its request
STREAM_STALL_SECONDS: Final = 60.0  # without the client taking a chunk of its answer
STREAM_STALLS_CROWDED_SECONDS: Final = 5.0  # of all chunks together, while others wait for its worker
RATES_USERS_MAX: Final = 4096  # whose use is remembered
SHARES_CROWD_FACTOR: Final = 4  # times what the host may have: the most, however many users have a part each

# Watches of the host (`watch_host`): processes and captures as they change
LIVE_PER_UID_MAX: Final = 8  # open at once: a tab has one while it is seen
LIVE_MAX: Final = 64
LIVE_RESERVED: Final = 16
LIVE_SECONDS: Final = 0.25  # between two messages: what changes meanwhile is in the second
LIVE_CORES: Final = 0.05  # that working out captures may take of the event loop, for one user's watches
LIVE_LOOK_SECONDS: Final = 2.0  # between two looks at all processes, for one user's watches
LIVE_LOOK_CORES: Final = 0.02  # that such looks may take, for all users together: then they are fewer,
LIVE_LOOK_SECONDS_MAX: Final = 10.0  # but one in so long for all together: where cores are busy a look takes long
LIVE_KEPT_SECONDS: Final = 5.0  # that is worked out for a user behind the last watch: the next begins with it
LIVE_LOOKS_AT_ONCE: Final = 4  # of different users: a look waits where processes of its user do not answer
LIVE_BEAT_SECONDS: Final = 15.0  # without a change: then a message says that it goes on
LIVE_STALL_SECONDS: Final = 30.0  # that a message waits for its reader
LIVE_PROCESSES_MAX: Final = 500  # that a message has; the others are counted
LIVE_TARGETS_MAX: Final = 32  # of one capture; the others are counted
LIVE_ENDED: Final = 10  # captures that are over
LIVE_TEXT_CHARACTERS_MAX: Final = 300  # of a command or a sentence

# Ingest: event chunks from streamers (untrusted: whoever has the target's uid can be one)
INGEST_CHUNK_BYTES_MAX: Final = 1 * MiB  # one chunk, and all chunks of one message
INGEST_CHUNK_EVENTS_MAX: Final = 65_536  # an arena chunk holds 2046
INGEST_CREDIT_BYTES: Final = 4 * MiB  # sent and not acked, of one stream; less when there are many
INGEST_CREDITS_BYTES: Final = 64 * MiB  # shared among the open streams, never less than a message each
INGEST_EXPECTED_MAX: Final = 512  # processes whose chunks are awaited: each may have one call
INGEST_EXPECTED_PER_UID_MAX: Final = 512
INGEST_EXPECTED_RESERVED: Final = 512  # beside, for root's and those of who runs the daemon
INGEST_THREADS_MAX: Final = 65_536  # streams of chunks (queues of threads) in one incarnation
INGEST_REMEMBERED_PER_UID_MAX: Final = 1 << 19  # threads, and such gaps, of all processes of a user: some 70 MB
INGEST_GAPS_MAX: Final = 4096  # chunks of one incarnation that others have overtaken and that may still come
STORED_AT_ONCE: Final = 1  # traces that are synced and entered, users in turn
INGEST_WRITERS: Final = 2  # threads that check and write, users in turn, a user in one of them at a time
INGEST_REJECTED_MAX: Final = 64  # chunks of one message that are named when they are refused; all are counted
INGEST_BROKEN_MAX: Final = 1024  # of one incarnation, and more than sound ones: then nothing more is looked at
INGEST_LOSSES_MAX: Final = 24  # entries of one Finish: a streamer of ours knows some fifteen reasons
INGEST_JOURNAL_BYTES_MAX: Final = 4 * GiB  # of one target of one capture
INGEST_TRACE_FACTOR: Final = 4  # so many times its bytes are kept free for the trace it becomes: 2.8 for plain ranges
INGEST_OPENING_PER_UID: Final = 32  # streams whose first message is read: gRPC holds what came of it, until it ends
INGEST_OPENING: Final = 1024
INGEST_PUSHED_MAX: Final = 16  # streams at once that no capture asked for: each holds a file on the store's disk
INGEST_PUSHED_PER_UID_MAX: Final = 8
INGEST_PUSHED_RESERVED: Final = 8
INGEST_PUSHED_IDLE_SECONDS: Final = 60.0  # without a message: such a stream ends with what it has
INGEST_PUSHED_PER_SECOND: Final = 5.0  # of one user, that begin or come back
INGEST_PUSHED_BURST: Final = 50
INGEST_PUSHED_BYTES_MAX: Final = 1 * GiB  # of one of them
INGEST_PUSHED_ENDED_PER_UID_MAX: Final = 256  # that have become a trace, and whose sender may ask which
INGEST_PUSHED_ENDED_MAX: Final = 4096
INGEST_LABEL_CHARS_MAX: Final = 255
LEAD_BYTES: Final = 4 * MiB  # of an arena, that its streamer allocates ahead: 20 ms of 10^7 ranges a second
LEADS_BYTES_MAX: Final = (
    256 * MiB
)  # that all streamers may have allocated, and no more than a quarter of the daemon's room
LEADS_BYTES_PER_UID_MAX: Final = 128 * MiB
STREAMER_RESTARTS_MAX: Final = 5  # of the streamer of one drain, in a row: acked chunks start the count anew
STREAMER_TASKS_EACH_MAX: Final = 24  # gRPC has a thread for each core, 4 to 16 of them, and there are 5 more
STREAMER_TASKS_MAX: Final = CAPTURES_ACTIVE_MAX * STREAMER_TASKS_EACH_MAX  # of all streamers, which have one uid
STREAMER_MESSAGE_BYTES_MAX: Final = 4096  # between a streamer and its daemon, JSON

# Workers
WORKER_MEMORY_BYTES: Final = 4 * GiB
LASTING_NICE: Final = 5  # steps that imports, exports and indexes are below questions: a third (each step is 1.25)
LASTING_LOW_SECONDS: Final = 1.0  # that their sessions stay there behind a question: the next one mostly follows
WORKERS_EXTRA_MAX: Final = 4  # beyond the pool's size, for users who have none while others have all
WORKERS_EXTRA_WAIT_SECONDS: Final = 1.5  # that such a user waits before one is started
GLANCE_LEFT_SECONDS: Final = 1.0  # for a job that nobody waits for any more to end by itself: a worker starts no sooner
WORKERS_EXTRA_IDLE_SECONDS: Final = 30.0  # until it ends
WORKER_JOB_SECONDS: Final = 900
WORKER_CPU_SECONDS: Final = 2 * 3600  # of one worker, on all its threads; after half of it another takes its place
WORKER_FILE_BYTES_MAX: Final = TRACE_INFLATED_BYTES_MAX  # one file that a worker writes
WORKER_CALLS_ASKED_MAX: Final = 64  # unknown system calls of one worker that the daemon answers; then the kernel does
WORKER_CALLS_LOGGED_MAX: Final = 256  # different ones, a line each
WORKER_STDERR_BYTES: Final = 64 * 1024  # of one worker that are kept: a pipe's
DECODE_CPU_SECONDS_MIN: Final = 60.0  # of a worker's CPU to store a trace, however small
DECODE_CPU_SECONDS_PER_MIB: Final = 4.0  # of its inputs more: gzip holds some 20 MiB of JSON in one, which take 0.4 s
DECODE_CPU_LOOK_SECONDS: Final = 1.0

# Audit log
AUDIT_INTERVAL_SECONDS: Final = 60.0  # one summary of a uid, at most, of what got no line of its own
AUDIT_LINES_MAX: Final = 120  # of one uid in one interval; root and admins may write all they do
AUDIT_DENIALS_MAX: Final = 60  # the same, counted apart: nobody hides them behind what they may do
AUDIT_READS_MAX: Final = 60  # the same, of traces and processes of others
AUDIT_MET_MAX: Final = 4096  # reads that are told apart in one interval, so that only the first has a line
AUDIT_UIDS_MAX: Final = 1024  # told apart in one interval; those after them share one allowance
AUDIT_SUBJECTS_MAX: Final = 24  # traces, processes and methods that one summary names
AUDIT_FIELD_BYTES_MAX: Final = 256  # of one detail, as JSON
AUDIT_LINE_BYTES_MAX: Final = 2048
AUDIT_FILE_BYTES_MAX: Final = 16 * MiB
AUDIT_FILES_KEPT: Final = 8  # beside the one that is written
AUDIT_KEPT_BYTES_MAX: Final = 16 * MiB  # of lines older than these files, shared fairly among the uids
AUDIT_COPIES_WAITING_MAX: Final = 1024  # lines that journald or syslog has not taken yet; others are dropped

# Store
STORE_BYTES_DEFAULT: Final = 20 * GiB
STORE_SHARE_DEFAULT: Final = 0.10  # of the filesystem, where that is less
DISK_FREE_SHARE_MIN: Final = 0.05  # below it nothing new is begun, and imports end
DISK_FREE_BYTES_MIN: Final = 256 * MiB  # or that share, where it is less: captures that run end before it is touched
DISK_UID_SHARE: Final = 0.5  # of what may be written: the most that one user's unfinished work may hold or be promised
DISK_STEP_BYTES: Final = 16 * MiB  # promised ahead of what writes on and on
DISK_LOOK_SECONDS: Final = 0.5  # between two looks at what workers and other programs have written
ARCHIVE_TRACE_BYTES_MAX: Final = 1 << 30  # of a trace in an archive for Perfetto: it lies on the disk until it is whole
EVICTIONS_NAMED_MAX: Final = 1_000  # traces that an answer about evictions names; it counts the others
REMOVED_TOGETHER: Final = 256  # traces that go by one sync; lists wait some ms for the catalog meanwhile
TRACES_PER_UID_MAX: Final = 10_000  # however small; the user's oldest go. Each costs starts, evictions and pins some µs
PINS_PER_UID_MAX: Final = 100  # traces
PINNED_SHARE_MAX: Final = 0.5  # of the store, for all pins; and of a user's equal share of it, for theirs
META_BYTES_MAX: Final = 128 * MiB  # meta.json of one trace
META_MEMBERS_MAX: Final = 256  # of it; a trace has some forty
META_PART_BYTES_MAX: Final = 4 * MiB  # of its members that the daemon makes objects of; real ones have some kilobytes
RECORD_BYTES_MAX: Final = 16 * MiB  # one durable record (a capture, pins and shares of a trace)
CAPTURES_KEPT_MAX: Final = 5_000  # records of ended captures; the oldest of whoever has most go first
CAPTURES_KEPT_PER_UID_MAX: Final = 1_000
CAPTURE_TARGETS_KEPT_MAX: Final = 100_000  # processes in such records, which are in memory: 2 to 33 kB each
CAPTURE_TARGETS_KEPT_PER_UID_MAX: Final = 20_000
CAPTURE_BYTES_KEPT_MAX: Final = 512 * MiB  # of such records on the disk; in memory they take about as much
CAPTURE_BYTES_KEPT_PER_UID_MAX: Final = 64 * MiB  # 20,000 processes have 30 to 40, unless they say all that they may
CAPTURE_COMMAND_CHARACTERS_MAX: Final = 1024  # of one of them, in a record and as the title of its trace
CAPTURE_JOB_CHARACTERS_MAX: Final = 128
SAID_CHARACTERS_MAX: Final = 2048  # of a sentence in such a record, and of all of one kind of one process
SAID_SENTENCES_MAX: Final = 24
SHARES_MAX: Final = 256  # users one trace is shared with
SHARE_NAME_CHARACTERS_MAX: Final = 256
JOURNAL_BYTES_MAX: Final = 8 * GiB  # raw files kept for `profctl retry`
JOURNAL_SECONDS_MAX: Final = 24 * 3600
JOURNAL_TARGETS_MAX: Final = 16_384  # processes with such files, a folder each
JOURNAL_TARGETS_PER_UID_MAX: Final = 4_096  # as many as a user may record at once
JOURNAL_LOOK_CORES: Final = 0.02  # of a core, that looks at all of it may take: 50 us a folder, with Python's lock
JOURNAL_SETTLED_SECONDS: Final = 3600  # longer than any capture: what changed since may be live

PASSED_DESCRIPTORS_MAX: Final = 16  # by the service manager at the start; the unit lets it keep one

# Kineto on demand (untrusted datagrams and the files that targets write)
KINETO_DATAGRAM_BYTES_MAX: Final = 4096  # a poll is 100 bytes; libkineto sends at most 11 pids
KINETO_PIDS_MAX: Final = 64
KINETO_PROCESSES_MAX: Final = 4096
KINETO_PROCESSES_PER_UID_MAX: Final = 1024
KINETO_PROCESSES_RESERVED: Final = 1024  # beside, for root's and those of who runs the daemon
KINETO_GPUS_MAX: Final = 64  # whose clients of old are counted, a place for each process and GPU
KINETO_POLLS_PER_SECOND_MAX: Final = 50  # of one process; the shortest period libkineto can be given is 1 s
KINETO_DATAGRAMS_PER_SECOND_MAX: Final = 2 * KINETO_POLLS_PER_SECOND_MAX  # of one process: the rest is not read
KINETO_DATAGRAMS_PER_UID_PER_SECOND_MAX: Final = 2048  # twice what KINETO_PROCESSES_PER_UID_MAX have to say
KINETO_SENDERS_TOLD_APART: Final = 16 * 1024  # processes in a second; of more only their users' datagrams are counted
KINETO_USERS_TOLD_APART: Final = 1024  # in a second; more share one user's part
KINETO_QUEUED_MAX: Final = 1024  # datagrams received and not looked at: more would be stale before they are
KINETO_CONFIG_BYTES_MAX: Final = 16 * 1024  # far below the sender's SO_SNDBUF
PICKUP_BYTES_MAX: Final = 4 * GiB  # of data in a file that a target wrote; more is cut off
PICKUP_ESTIMATES_MAX: Final = 16  # or so many times what it was estimated to be, within TRACE_FILE_BYTES_MAX
PICKUP_PIECES_MAX: Final = 10_000  # between holes, of such a file: a real one has none
KINETO_LEFTOVERS_MAX: Final = 256  # traces we asked for and whose files may still appear
KINETO_SALVAGE_SECONDS: Final = 10.0  # at the start, for those that were there when the last daemon was killed

# Samplers (py-spy): each takes two processes of the host, and a part of the event loop while it runs
PYSPY_SAMPLERS_PER_UID_MAX: Final = 64  # processes of one user that are sampled at once
PYSPY_SAMPLERS_PER_CORE_MAX: Final = 16  # of one user, too: each is a program that wants a processor 100 times a second
PYSPY_SAMPLERS_MAX: Final = 256
PYSPY_SAMPLERS_RESERVED: Final = 256  # beside, for root's and those of who runs the daemon
PYSPY_STARTS_MAX: Final = 8  # that begin at once on the host, and no more than it has cores; two in any case
PYSPY_STARTS_PAUSE_SECONDS: Final = 0.01  # from one start to the next: a fork of the daemon stops its loop
PYSPY_START_HELD_SECONDS: Final = 2.0  # the longest that one counts as beginning: symbols of large programs take more
PYSPY_TURN_SECONDS: Final = 60.0  # that a target may wait for others to begin

# Agents of attached processes (untrusted packets and descriptors)
AGENT_PACKET_BYTES_MAX: Final = 16 * 1024
AGENT_KEYS_MAX: Final = 64  # of one packet
AGENT_VALUE_CHARACTERS_MAX: Final = 4096
THREAD_NAME_CHARACTERS_MAX: Final = 64
AGENT_LABEL_CHARACTERS_MAX: Final = 256  # of a name or version in HELLO and CHANGED: they are shown in lists
RANK_MAX: Final = (1 << 24) - 1  # of a process, whoever says it: lists and records hold 32 bits
AGENT_WORDS_MAX: Final = 64  # of `can`: an agent has about ten
AGENT_PACKETS_PER_SECOND_MAX: Final = 50  # of one agent; it has five things to say a second, and only while armed
AGENT_PACKETS_WAITING_MAX: Final = 512  # of one agent, read at once: more than a socket holds while nobody reads it
AGENT_PACKET_UNIT_BYTES: Final = 1024  # a larger packet counts as several
AGENT_UNITS_PER_UID_PER_SECOND: Final = 1000.0  # of all agents of a user: an armed one says one thing a second or five
AGENT_UNITS_BURST: Final = 4096  # AGENTS_PER_UID_MAX come back at once, with up to four units each
FREED_AT_ONCE_BYTES: Final = 256 * 1024  # of a memfd or a file without a name, in 0.1 ms: larger ones a thread frees
RECALL_BYTES_MAX: Final = 8 * MiB  # what a flight recorder remembers: 2,000 collectives are 0.4 to 0.9 MB of JSON
RECALL_NUMBERS_BYTES_MAX: Final = 256 * 1024  # of the numbers alone: some 100 bytes a group
RECALLED_BYTES_MAX: Final = 64 * MiB  # that all processes of one question remember; their worker reads them one by one
RECALL_AT_END_COLLECTIVES_MAX: Final = 300
"""That a flight recorder may keep to be asked while its job goes on: 3 ms of CPU, its lock held for 0.3 ms of them."""
RECALL_AT_END_BYTES_MAX: Final = MiB  # of its answer; 300 are 140 kB
RECALL_AT_END_SECONDS: Final = 4.0  # for its turn and its answer
RECALL_SECONDS: Final = 2.0  # that its answer may take: without what it remembers 0.1 ms, with it some 50
RECALLS_AT_ONCE_PER_UID: Final = 8  # waited for, of all processes that a user asks
RECALLS_AT_ONCE: Final = 64
JUDGED_AT_ONCE: Final = 4  # questions about hangs of all users whose answers are held; one of each user
JUDGE_SECONDS: Final = 30.0  # for a worker and its verdict
AGENT_HELLO_SECONDS: Final = 30.0  # from connect() until it has said who it is
AGENT_RETURN_SECONDS: Final = 15.0  # after its porter has ended: so long it goes on recording, and tries each second
AGENTS_MAX: Final = 4096  # connections of attached processes, two descriptors each
AGENTS_PER_UID_MAX: Final = 1024
AGENTS_RESERVED: Final = 1024  # beside, for root's and those of who runs the daemon
AGENT_TRY_AGAIN_SECONDS: Final = 30.0  # the longest that an agent waits between two attempts
AGENT_CONNECTIONS_PER_SECOND: Final = 50.0  # of one user
AGENT_CONNECTIONS_BURST: Final = 2 * AGENTS_PER_UID_MAX  # so that all come back at once to a daemon that was restarted
CARRIED_CONNECTIONS_PER_SECOND: Final = 50.0  # of one user, before Linux 6.16: as often as they may have a token
CARRIED_CONNECTIONS_BURST: Final = 200
AGENT_LINES_BURST: Final = 10  # of the log at once, about agents of one user that were cut off
PORTERS_MAX: Final = 128  # at once; users after them share one
PORTERS_KEPT: Final = 64  # of them, for users who have none: the second container of a uid has none of these
PORTERS_PER_UID_MAX: Final = 16  # of the containers of one uid, those that are stuck included; others share one more
PORTERS_STUCK_MAX: Final = (
    3  # of one container, killed and still there: then no further one until one of them has ended
)
PORTER_ANSWERS_SECONDS: Final = 5.0  # then it waits for a descriptor that its user has passed, and is killed
PORTER_IDLE_SECONDS: Final = 60.0  # without a connection, until it ends
DROPPERS_MAX: Final = 64  # users who have one; those after them share one
DROPPERS_FULL_MAX: Final = (
    16  # of one user, given up and still there: with 65,536 each what fs.nr_open lets a user have
)
DROPPERS_FULL_HOST_MAX: Final = 64  # of all users
DROPPER_DESCRIPTORS_MAX: Final = 65_536  # that one may have, where the daemon may
DROPPER_LOOK_SECONDS: Final = 5.0  # between two questions how much it holds
DROPS_WAITING_MAX: Final = 1024  # sockets that nobody can be found to close; no more are accepted then
ARENA_BYTES_MIN: Final = 1 * MiB
ARENA_BYTES_LEAST: Final = 2 * MiB  # that is asked for without --force: below it every burst loses events
ARENA_BYTES_MAX: Final = 4 * GiB
ARENA_UID_SHARE: Final = 1 / 4  # of the host's free memory: the most that is promised to one user's recordings
ARENA_USERS_SHARE: Final = 7 / 8  # to those of all users; the rest is kept for root's and of who runs the daemon
ARENA_STRINGS_BYTES: Final = 8 * MiB  # of each arena, and no more than a third of it

# Senders of Kineto's datagrams that were not heard of before
KINETO_UNKNOWN_MAX: Final = 512  # that wait to be asked about
KINETO_UNKNOWN_PER_UID_MAX: Final = 128

# Processes that do not answer: stuck within execve, or behind pages of a file system that is (targets/guarded.py)
PROC_WAIT_SECONDS: Final = 0.25  # for one look into a process, while what looks waits; ten times that while it runs
PROC_WAIT_LOOP_SECONDS: Final = 0.02  # the same on an event loop
PROC_SIGHT_SECONDS: Final = 1.0  # that no child could be made is believed, unless one is
PROC_WAIT_SECONDS_PER_UID: Final = 0.5  # for all processes of a user, in PROC_STUCK_SECONDS
PROC_LATE_SECONDS_PER_UID: Final = 0.1  # the same of answers that came, and late; then a look has the next line
PROC_LATE_SECONDS: Final = 0.003
PROC_WAIT_SECONDS_ALL: Final = 2.0  # for all processes; beyond it each has PROC_WAIT_SECONDS_MIN
PROC_WAIT_SECONDS_MIN: Final = 0.01
PROC_STARVED_SECONDS: Final = 1.0  # in PROC_STUCK_SECONDS, of children without a core: held against nobody
PROC_STUCK_SECONDS: Final = 5.0  # for which one that did not answer is not asked again
PROC_EXECS_SEEN_MAX: Final = 3  # in looks at one process; a launcher execs two programs, a third is the job
PROC_RESTLESS_SECONDS: Final = 5.0  # for which one with more is not looked at in lists of others; doubled each time
PROC_RESTLESS_SECONDS_MAX: Final = 60.0
PROC_STUCK_MAX: Final = 4096  # of them, and of their users, that are remembered
PROC_STARTS_MAX: Final = 16_384  # processes whose start time is remembered
PROC_STARTS_HELD_MAX: Final = 1024  # where that takes a descriptor for each (before Linux 6.9)
PROC_MAPS_BYTES: Final = 4 * MiB  # of one process's mappings: some 40,000 of them; libraries of 20,000 fit in 2 MiB
PROC_LOOK_BYTES_PER_SECOND: Final = 4 * MiB  # of all files of one user's processes, that change: by all who look
PROC_LOOK_BYTES_BURST: Final = 32 * MiB  # after a pause: a hundred processes of torch's that have just begun
PROC_LOOK_BYTES: Final = 4096  # that one look counts as, besides what it reads
PROC_GPUS_MAX: Final = 64  # of one process, as its descriptors and its environment say: records keep them
PROC_REMEMBERED_MAX: Final = 65_536  # processes of which something is remembered between two lists
PROC_REMEMBERED_BYTES_PER_UID: Final = 64 * MiB  # of their texts; further ones are looked at anew, at the rate above
PROC_REMEMBERED_BYTES: Final = 4096  # that one counts as, besides its texts: so a user has 16,384
THREADS_NOTED_MAX: Final = 4096  # of a process that is sampled, whose ends are noted: ten times a second
LOAD_THREADS_MAX: Final = 1024  # threads of a process whose load is looked at, 30 µs each
RUN_TIMES_THREADS_MAX: Final = 4096  # threads of a process whose run times are looked at, 8 µs each
AGENT_PEERS_WAITING_MAX: Final = 64  # connections of one user that wait to be identified

# Files of targets, which may lie on file systems that do not answer (errands/)
ERRAND_SECONDS: Final = 15.0  # for one look at a directory of a target, or ERRAND_PIECE_BYTES of a file
NAMES_SEND_SECONDS: Final = 0.05  # for a reply to one, before Linux 5.12: its client waits for 0.09 s
NAMES_SECONDS: Final = 5.0  # for what is done with names of Kineto's sockets
ERRAND_PIECE_BYTES: Final = 16 * MiB  # of a file that is copied, after which it is told that it goes on
ERRAND_START_SECONDS: Final = 10.0  # until there is a process for it: an interpreter starts, once, then a fork
ERRANDS_PER_UID_MAX: Final = 8  # processes that have directories open; with more directories they share these
ERRANDS_STUCK_PER_UID_MAX: Final = 4  # processes that cannot be ended: nothing more is looked at then
ERRANDS_STUCK_SECONDS: Final = 1.0  # that a process may take to end
ERRANDS_MAX: Final = 64  # processes of all users; users who have none of them may have as many again
ERRANDS_TASKS_MAX: Final = 192  # in their cgroup: twice ERRANDS_MAX, those that wait, and what makes them
ERRANDS_IDLE_MAX: Final = 16  # processes that wait for the next question about files of the same user

# GPUs
GPU_LEASE_TTL_SECONDS: Final = 15.0  # a holder whose target is not heard of for so long is said to be silent
GPU_HOLDER_CHARS_MAX: Final = 128  # of the name that another profiler gives itself
GPU_FOREIGN_HOLDERS_MAX: Final = 64  # processes of which another profiler is remembered
PM_INTERVAL_US: Final = (100, 1_000_000)  # between samples of hardware counters
PM_SAMPLES_MAX: Final = 200_000  # of one GPU in one recording; what comes after them is counted
PM_LINE_BYTES_MAX: Final = 4 * MiB  # between a sampler of counters and its daemon
GPU_CHECK_PROCESSES_MAX: Final = 4096  # that the doctor looks into, newest first

# Samplers (what else they may use is in sources/pyspy)
SAMPLER_MEMORY_BYTES: Final = 1 * GiB  # of its own: six times what it writes at its end, which it holds until then
SAMPLER_MEMORY_NATIVE_BYTES: Final = 2 * GiB  # the same with native frames, of which it writes more
SAMPLER_THREADS_MAX: Final = 16  # that one starts; py-spy starts two
SAMPLER_WORDS_BYTES_MAX: Final = 256 * 1024  # that py-spy prints on one stream: a line a second when it is late
SAMPLERS_TASKS_PER_UID_MAX: Final = 1024  # in their cgroup (targets/delegation.py): 256, of four, with their wardens
SAMPLERS_TASKS_MAX: Final = 1280  # of all users
CHILD_GROUPS_MAX: Final = 4096  # of users, in these cgroups,
CHILD_GROUP_IDLE_SECONDS: Final = 600.0  # of which one that is empty goes after so long
SAMPLERS_LEFT_MAX: Final = 4  # of a user, wardens too, killed and not gone: each is a task of the daemon's cgroup

# Builds of PyTorch's observer (what they may use is in profclient/torch/builder.py)
OBSERVER_BUILD_SECONDS: Final = 600.0  # of a build at nice 19, while another user's waits for its place
OBSERVER_BUILD_ALONE_SECONDS: Final = 3600.0  # while none does: on a busy host one took more than 600 s
OBSERVER_BUILD_CPU_SECONDS: Final = 240.0  # of all of a build's processes: 15 with gcc and no CUDA
OBSERVER_STALLED_SECONDS: Final = 60.0  # a build that gets less CPU time than the next number meanwhile is ended
OBSERVER_STALLED_CPU_SECONDS: Final = 0.05  # at nice 19 beside ten busy processes of a core it gets 0.08 a minute
OBSERVER_QUIET_SECONDS: Final = 3600.0  # without builds for a user whose build took longer
OBSERVER_MEMORY_BYTES_MIN: Final = 2 * GiB  # that must be free: the compiler took 0.6 GiB
OBSERVER_BUILDS_MAX: Final = 1024  # that are remembered, and processes that want one
OBSERVER_BUILDS_AT_ONCE: Final = 2  # of different users, so that who stops theirs keeps nobody waiting
OBSERVER_TASKS_MAX: Final = 64  # processes and threads that a build starts: 8 with gcc and no CUDA
OBSERVER_ANSWER_BYTES_MAX: Final = 64 * 1024  # of the builder

# Profiler servers of JAX and TensorFlow processes (untrusted answers)
JAX_PORTS_MAX: Final = 32  # listening sockets of one process that are asked
JAX_LOOK_SECONDS: Final = 6.0  # that a list waits for ports that accept and say nothing: one of them is silent for 5 s
JAX_PROBES_AT_ONCE_PER_UID: Final = 8  # ports that are asked whether they are a profiler server; a silent one for 5 s
JAX_PROBES_AT_ONCE: Final = 64
JAX_RESPONSE_BYTES_MAX: Final = 512 * MiB  # of one window; gRPC has it three times at first; protobuf ends at 2 GiB
JAX_RECORDING_BYTES_MAX: Final = 2 * GiB  # of all windows of one recording
JAX_WINDOWS_MAX: Final = 60  # of one recording: each is a file, and a worker takes 128 descriptors
JAX_LAST_NS_MAX: Final = 25_000_000_000  # that a recording may keep of what came last: JAX_WINDOWS_MAX snapshots
JAX_LEFTOVERS_MAX: Final = 64  # continuous sessions of an earlier daemon that are ended
JAX_REQUESTS_AT_ONCE: Final = 10  # of the whole daemon, which holds their answers in memory
# All processes of a node of eight GPUs begin together; a server that does not answer keeps its place for half a minute.
JAX_REQUESTS_AT_ONCE_PER_UID: Final = 8
# 1 MiB costs the daemon 2 ms. The smallest operations one after the other make 69 MB a second in one process; what
# comes faster for long waits in the process, and comes later.
JAX_HANDED_BYTES_PER_SECOND: Final = 64 * MiB  # of all processes of a user
JAX_HANDED_BYTES_BURST: Final = 256 * MiB

# Bundles: traces as files of other hosts
BUNDLE_FILES_MAX: Final = 4096  # TRACE_EVENTS_MAX in segments
BUNDLE_MANIFEST_BYTES_MAX: Final = 4 * MiB
BUNDLE_SEGMENT_ROWS_MAX: Final = 1 << 20
BUNDLE_SEGMENT_BYTES_MAX: Final = 1 * GiB  # of one segment in memory, as its own footer states it

# Questions to a stored trace
DEMANGLE_NAME_BYTES_MAX: Final = 1024  # of a C++ symbol: libstdc++ takes no longer one
DEMANGLE_RESULT_BYTES_MAX: Final = 16 * 1024  # a symbol of 200 bytes can stand for gigabytes
DEMANGLE_TOTAL_BYTES_MAX: Final = 32 * MiB  # of all symbols of one answer; those after them stay as recorded
QUERY_ROWS_MAX: Final = 10_000_000  # for what needs a whole trace at once: some 300 bytes each in a worker
DEVICE_WORK_MAX: Final = 16_000_000  # kernels, copies and fills of a trace: some 200 bytes each in a worker
OPERATORS_ROWS_MAX: Final = 125_000_000  # of which it is told who launched most: 0.45 us of CPU time each, a minute
ROLLUP_BYTES_MAX: Final = 8 * MiB  # of what is kept of one answer about one trace, before and after it is compressed
TILE_LANES_MAX: Final = 1 << 20  # of a timeline
TILE_NAME_CHARS_MAX: Final = 200  # of a name on a page
TILE_WIDTH_MAX: Final = 1 << 14  # pixels
TILE_ROWS_MAX: Final = 200_000  # of an answer
TILE_TRACKS_MAX: Final = 100_000  # of a timeline that are named
SEARCH_SHARE: Final = 64  # events for each name in each part of a trace, or it is searched event by event
SEARCH_NAMES_BYTES_MAX: Final = 16 * MiB  # of all names of a trace that are kept to be searched
TILE_SHARE: Final = 8  # the finest level that is kept has so many events for each box and cell
TILES_LEAST: Final = 1 << 14  # fewer boxes and cells are not worth a coarser level
TILES_MOST: Final = 1 << 22
SKETCH_ROWS: Final = 1 << 23  # of traces with more a sketch is drawn first; to index as many takes half a second
SKETCH_GROUPS: Final = 48  # row groups of 131,072 rows that a sketch is drawn of: 0.25 s of CPU
TILES_BYTES_MAX: Final = 256 * MiB  # of each of their files
ROLLUPS_CACHED_BYTES_MAX: Final = 256 * MiB  # of exported captures, in the cache of each user that asks them
PACKED_BYTES_MAX: Final = 64 * MiB  # of a job's rollups that come to it as one file; of more it gets the directories
PACKED_AT_ONCE_PER_UID: Final = 2  # such files, from their making to the end of their job,
PACKED_AT_ONCE: Final = 8  # of all users; jobs beyond get the directories
CAPTURE_LOOKS_AT_ONCE: Final = 4  # users whose captures are looked up for a question, one of each user
CAPTURE_TRACES_MAX: Final = 4096  # of a capture that is asked as one
COMMIT_BYTES_MAX: Final = 64 * MiB  # of what an exported capture says that it has
CAPTURE_THREADS_MAX: Final = 4  # that look at its traces side by side
CAPTURE_ROWS_MAX: Final = 2_000_000  # of all its traces together, before they are added up: some 400 bytes each
SQL_TEXT_BYTES_MAX: Final = 64 * 1024
SQL_SECONDS: Final = 60.0  # of DuckDB, once the trace is read
SQL_STREAM_SECONDS: Final = 600.0  # of DuckDB and of reading meanwhile: the traces of a capture, or a large one
SQL_VALUES_PER_SECOND: Final = 50_000_000  # that are read of a large one: half of what a core does that nobody shares
SQL_MEMORY_BYTES: Final = 1 * GiB  # of DuckDB, beside the trace in Arrow
SQL_ROWS_MAX: Final = 1_000_000
SQL_ARGS_MAX: Final = 20_000_000  # arguments, where a question asks for them
SQL_RESULT_BYTES_MAX: Final = 64 * MiB
DIFF_CELLS_MAX: Final = 20_000_000  # of a capture: what is compared, times steps, over its traces; 32 bytes each
DIFF_ROWS_MAX: Final = 10_000  # of an answer; the largest changes come first
MERGED_PATHS_MAX: Final = 10_000  # of an answer; those with most time
MERGED_SIDE_PATHS_MAX: Final = 2_000_000  # of all traces of a capture that is compared; 80 bytes each
ALIVE_STACKS_MAX: Final = 1_000  # of an answer; those with most bytes
DIFF_FRAMES_MAX: Final = 128  # deeper calls are compared as part of the call at that depth
