"""Threads that profd has started in a process: answers about the job leave them out, and say how many.

Their names tell: that of the track, or that which the kernel had. A program may name a thread of its own so: then the
answer says that it left one out. `--thread` names one of them, and `top --raw` counts every event.
"""

from __future__ import annotations

from profd.model.run_times import of_profd
from profd.query.accounting import beside_of
from profd.segments.meta import TraceMeta


def own_tracks(meta: TraceMeta) -> frozenset[int]:
    """The tracks of these threads, and of their samples."""
    of_kernel = {str(thread.id): thread.name for thread in meta.run_times.threads}
    tracks = meta.tracks.threads
    own = [of_profd(track.get("name")) or of_profd(of_kernel.get(str(track.get("id")))) for track in tracks]
    return frozenset(number for number, of in enumerate(beside_of(meta.tracks).tolist()) if own[of] or own[number])


def own_threads(meta: TraceMeta, tracks: frozenset[int]) -> int:
    """How many threads these tracks are of: samples of a thread are no other one."""
    beside = beside_of(meta.tracks)
    return len({int(beside[track]) for track in tracks})
