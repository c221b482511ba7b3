"""Nobody but targets/procfs looks into another process: whoever does may wait for it for ever."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import profd

# Who names a path below /proc/PID, and why nobody waits for that.
NAMED = {
    "sources/pyspy/confinement.py": "maps by the room; modes of files below the root behind that",
    "sources/pyspy/launch.py": "in the child that becomes the sampler, which is ended at its deadline",
    "sources/pyspy/tool.py": "status, task and schedstat, which never wait, and of our own samplers",
    "sources/pyspy/warden.py": "in a process of its own, which dies with its sampler",
    "observers/builder.py": "by the room",
    "targets/guarded.py": "stat(2) of the directory, which never waits",
    "targets/identity.py": "by the room",
    "targets/procfs.py": "the room itself",
    "sources/kineto/holders.py": "by the room",
}
# Who has a call that opens or reads something whose path is made of a process's folder, other than the room.
READS = {"open", "readlink", "listdir", "scandir", "stat", "lstat", "read_text", "read_bytes", "iterdir", "exists"}
FOLDERS = {"folder", "process", "root", "self._folder"}
DIRECT = {
    "targets/mapped.py": "its root is opened by the room; files below that by their descriptors",
    "trust/namespaces.py": "status of a process, which never waits",
    "sources/pyspy/target.py": "the list of its threads, which never waits",
}


def sources() -> Iterator[tuple[str, ast.Module]]:
    root = Path(profd.__file__).parent
    for file in sorted(root.rglob("*.py")):
        yield str(file.relative_to(root)), ast.parse(file.read_text("utf-8"))


def names_a_process(node: ast.AST) -> bool:
    """An f-string `/proc/{pid}/…`."""
    if not isinstance(node, ast.JoinedStr) or len(node.values) < 2:
        return False
    first = node.values[0]
    return isinstance(first, ast.Constant) and str(first.value).startswith("/proc/") and "self" not in str(first.value)


def reads_below_a_folder(node: ast.AST) -> bool:
    """`os.open(folder / …)`, `(folder / …).stat()`, `open(folder / …)`."""
    if not isinstance(node, ast.Call):
        return False
    called = node.func
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    if name not in READS or ast.unparse(called).startswith("procfs."):
        return False
    about = [*node.args[:1], *([called.value] if isinstance(called, ast.Attribute) else [])]
    return any(
        isinstance(part, ast.BinOp) and ast.unparse(part).split(" / ")[0].strip("(") in FOLDERS for part in about
    )


def test_who_names_a_path_of_another_process_is_known() -> None:
    found = {name for name, tree in sources() if any(map(names_a_process, ast.walk(tree)))}
    assert found <= NAMED.keys()


def test_who_reads_below_the_folder_of_a_process_is_known() -> None:
    found = {name for name, tree in sources() if any(map(reads_below_a_folder, ast.walk(tree)))}
    assert found <= DIRECT.keys()
