"""The client stays light: what it imports, and beside what it imports."""

import subprocess
import sys

import pytest

HEAVY = ("numpy", "pyarrow", "duckdb", "msgspec", "torch", "profd", "uvloop", "prometheus_client")


def loaded_by(statement: str) -> set[str]:
    script = f"{statement}\nimport sys\nprint(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in done.stdout.split()}


@pytest.mark.parametrize("module", ["profclient", "profclient.cli.app", "profclient.connection", "profclient.traces"])
def test_nothing_heavy_comes_along(module):
    assert loaded_by(f"import {module}") & set(HEAVY) == set()


def test_the_package_itself_imports_neither_grpc_nor_protobuf():
    assert loaded_by("import profclient") & {"grpc", "google", "click", "rich", "asyncio"} == set()


def test_a_relay_imports_no_more_than_it_needs():
    heavy = {"grpc", "google", "click", "rich", "asyncio", "ctypes", "typing", "json", "re", "enum", "socket"}
    assert loaded_by("import profclient.relay.__main__") & heavy == set()


@pytest.mark.parametrize("order", ["torch, profclient.connection", "profclient.connection, torch"])
def test_it_imports_beside_torch(order):
    pytest.importorskip("torch")
    done = subprocess.run([sys.executable, "-W", "error", "-c", f"import {order}"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_ctrl_c_while_it_is_loaded() -> None:
    script = (
        "import sys\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'profclient.cli.app': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        "from profclient.cli import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
