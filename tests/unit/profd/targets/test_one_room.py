"""Nobody but targets/procfs looks into another process: whoever does may wait for it for ever."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import profd

# Who names a path below /proc/PID, and why nobody waits for that.
NAMED = {
    "sources/pyspy/confinement.py": "maps by the room; modes of files below the root behind that",
    "sources/pyspy/tool.py": "by the room, of our own samplers",
    "observers/builder.py": "by the room",
    "targets/guarded.py": "stat(2) of the directory, which never waits",
    "targets/identity.py": "by the room",
    "targets/procfs.py": "the room itself",
    "targets/user_namespaces.py": "by the room",
    "sources/kineto/holders.py": "by the room",
}
# Who has a call that opens or reads something whose path is made of a process's folder, other than the room.
READS = {"open", "readlink", "listdir", "scandir", "stat", "lstat", "read_text", "read_bytes", "iterdir", "exists"}
FOLDERS = {"folder", "process", "root", "self._folder"}
DIRECT = {
    "sources/pyspy/target.py": "the list of its threads, which never waits",
}


# Who names something below the root of a process, which may lie on a file system that never answers.
BELOW = {
    "targets/errands/directory.py": "for a process of the errands",
    "observers/builder.py": "a folder of ours: opened by the room, and compared by the errands",
    "observers/torch_of.py": "for a process of the errands",
    "sources/pyspy/confinement.py": "for a process of the errands",
    "targets/table.py": "for a process of the errands",
}
# Who may touch files of targets: what runs in a process that can be given up.
TOUCHES = {"targets/errands/work.py", "targets/pickup.py"}


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


def below_a_root(node: ast.AST) -> bool:
    """`"root"` or `"…/root"`, as a part of a path."""
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.search(r"(^|/)root$", node.value) is not None
    )


def test_who_names_what_lies_below_the_root_of_a_process_is_known() -> None:
    found = {name for name, tree in sources() if any(map(below_a_root, paths(tree)))}
    assert found == BELOW.keys()


def paths(tree: ast.Module) -> Iterator[ast.AST]:
    """What is joined to a path: `… / "root"`, `Path(…, "root")`, the parts of an f-string."""
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            yield node.right
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "Path":
            yield from node.args
        elif isinstance(node, ast.JoinedStr):
            yield from node.values


def test_only_processes_that_can_be_given_up_touch_files_of_targets() -> None:
    found = {
        name
        for name, tree in sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.Name | ast.alias)
        and (node.id if isinstance(node, ast.Name) else node.name) in ("TargetDirectory", "read_without_links")
    }
    assert found == TOUCHES


def test_what_touches_files_of_targets_is_imported_by_its_server_alone() -> None:
    found = {
        name
        for name, tree in sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and (
            node.module == "profd.targets.errands.work"
            or (node.module == "profd.targets.errands" and "work" in {a.name for a in node.names})
        )
    }
    assert found == {"targets/errands/server.py"}


def test_who_takes_the_lock_of_a_file_that_a_target_may_hold_is_known() -> None:
    """Allocating and freeing memory of an arena waits for a target that keeps its inode locked, beyond SIGKILL."""
    taking = re.compile(r"\b(posix_fallocate|fallocate|MADV_REMOVE|MADV_POPULATE_WRITE)\b")
    found = {name for name, tree in sources() for node in ast.walk(tree) if taking.fullmatch(called(node))}
    assert found == {"targets/errands/work.py"}


def called(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else ""
