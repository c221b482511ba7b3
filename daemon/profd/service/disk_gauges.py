"""Gauges of the disk: looked at in the scraper's thread, because a disk may be slow."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from profd.disk.space import Space
from profd.errors import ProfdError
from profd.fairness.sparing import Sparing
from profd.journal.journal import Journal
from profd.limits import JOURNAL_BYTES_MAX, JOURNAL_LOOK_CORES

log = logging.getLogger("profd.telemetry.metrics")


class DiskGauges(Collector):
    """The filesystem of the state directory, and the journal on it."""

    def __init__(self, journal: Journal, space: Space) -> None:
        self._journal = journal
        self._space = space
        self._sparing = Sparing(JOURNAL_LOOK_CORES)
        self._held = 0

    def describe(self) -> Iterable[Metric]:
        """None: a registry would otherwise look at the disk when this is added to it."""
        return []

    def collect(self) -> Iterable[Metric]:
        """In the scraper's thread; nothing where the disk does not answer."""
        try:
            if self._sparing.due:  # anybody may scrape, as often as they like
                with self._sparing.piece():
                    self._held = self._journal.bytes()
            disk = self._space.statistics()
        except (OSError, ProfdError) as error:
            log.warning("no metrics of the disk", extra={"why": str(error)})
            return
        yield _gauge("profd_journal_bytes", "Raw data that has no trace yet.", self._held)
        yield _gauge("profd_journal_limit_bytes", "Size the journal is swept to.", JOURNAL_BYTES_MAX)
        yield _gauge("profd_disk_free_bytes", "Free on the filesystem of the state directory.", disk.free)
        yield _gauge("profd_disk_size_bytes", "Size of that filesystem.", disk.size)
        yield _gauge("profd_disk_reserve_bytes", "Free bytes below which nothing new is begun.", disk.reserve)
        yield _gauge("profd_disk_promised_bytes", "Promised to what writes now, not written yet.", disk.promised)


def _gauge(name: str, text: str, value: int) -> Metric:
    return GaugeMetricFamily(name, text, value=value)
