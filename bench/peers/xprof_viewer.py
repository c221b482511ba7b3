"""XProf's trace viewer: an XSpace to grouped events, derived lines and the JSON that it shows."""

from __future__ import annotations


def show(path: str) -> int:
    """Show a file (its name ends in .xplane.pb); the number of bytes of JSON."""
    from xprof.convert import raw_to_tool_data

    options = {"use_saved_result": False, "trace_viewer_options": {}}
    data, _ = raw_to_tool_data.xspace_to_tool_data([path], "trace_viewer", options)
    return len(data)
