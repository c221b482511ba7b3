"""The EventTable: the one shape in which events travel through the engine."""

from profd.events.schema import COLUMNS, NO_CODE, NO_END, NO_ROW, Column, DeviceType, Kind
from profd.events.table import ArgColumn, Dictionary, EventTable, Flows, Tracks

__all__ = [
    "COLUMNS",
    "NO_CODE",
    "NO_END",
    "NO_ROW",
    "ArgColumn",
    "Column",
    "DeviceType",
    "Dictionary",
    "EventTable",
    "Flows",
    "Kind",
    "Tracks",
]
