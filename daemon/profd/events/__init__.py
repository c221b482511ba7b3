"""The EventTable: the one shape in which events travel through the engine."""

from profd.events.schema import COLUMNS, LISTS, NO_CODE, NO_END, NO_ROW, NO_SCOPE, Column, DeviceType, Kind, Scope
from profd.events.table import ArgColumn, Dictionary, EventTable, Flows
from profd.model.tracks import Tracks

__all__ = [
    "COLUMNS",
    "LISTS",
    "NO_CODE",
    "NO_END",
    "NO_ROW",
    "NO_SCOPE",
    "ArgColumn",
    "Column",
    "DeviceType",
    "Dictionary",
    "EventTable",
    "Flows",
    "Kind",
    "Scope",
    "Tracks",
]
