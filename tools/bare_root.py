"""From a bare Debian to profd's demo, tests, service, upgrade and removal, by the commands that the docs print.

    .venv/bin/python -m tools.bare_root /opt/bare demo service    as root, on a host with debootstrap; no step: all

Each step takes its commands out of README.md and docs/, as they stand there, and runs them as a stranger would: one
after the other, up to the first that fails. Makes the folder where it is not there, and leaves it: run steps again, or
look around. The clone that strangers make is of this checkout's last commit.
"""

from __future__ import annotations

import argparse
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from tools.bare_host import BareHost, Failed, booted, install

HERE: Final = Path(__file__).resolve().parent.parent
CLONED: Final = "/srv/profd.git"
USER: Final = "ann"
README, SERVICE, OPERATIONS = "README.md", "docs/install-service.md", "docs/operations.md"

# What changes by itself, or is not profd's: logs, caches of pip and apt, the clone that it was installed from.
_NOT_OURS: Final = re.compile(
    r"/(proc|sys|dev|run|tmp|home|srv|root|var/(log|cache|tmp|lib/(apt|dpkg|systemd|private)))(/|$)"
)
_JOB: Final = """cat > train.py <<'END'
import time
def work():
    return sum(range(1000))
while True:
    work()
    time.sleep(0)
END
"""
_ASKED: Final = """profctl ps --pid $PID
profctl start --pid $PID --duration 2s
profctl top --limit 4
profctl where --pid $PID
"""
METRICS: Final = ("127.0.0.1", 9477)  # of a profd without settings
_METRICS: Final = f"urllib.request.urlopen('http://{METRICS[0]}:{METRICS[1]}/metrics').read().decode()[:300]"


def block(page: str, heading: str, number: int = 0) -> str:
    """The commands of one block of a page; the first below a heading is 0. Raises Failed where there is none."""
    text = (HERE / page).read_text()
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    blocks = re.findall(r"^```\n(.*?)^```", found.group(1) if found else "", re.MULTILINE | re.DOTALL)
    if len(blocks) <= number:
        raise Failed(f"{page} has no block {number} below {heading!r}")
    return str(blocks[number]).replace("<this repository>", CLONED)


def demo(host: BareHost, _before: str) -> None:
    """README: packages, a clone, `make demo`; all but the packages as a user."""
    host.run("root", block(README, "Install"))
    host.run(USER, f"rm -rf profd; git clone {CLONED} profd; cd profd; make demo")


def first_answer(host: BareHost, _before: str) -> None:
    """README: profd in a new environment, and each command of its first answer."""
    host.run(USER, f"rm -rf mine; git clone {CLONED} mine; cd mine; {block(README, 'Install', 1)}")
    commands = block(README, "First answer").replace("--pid PID", "--pid $(jobs -p %2)")
    commands = re.sub(r"profctl (ui|open) .*", "", commands)  # these stay, for a browser
    commands = commands.replace("profctl ps ", "sleep 10; profctl ps ", 1)
    host.run(USER, f"set -m; . mine/venv/bin/activate\n{_JOB}{commands}\nkill %2 %1")


def tests(host: BareHost, _before: str) -> None:
    """CONTRIBUTING: `make test`, in the user's clone."""
    host.run(USER, "cd profd; make test")


def service(host: BareHost, _before: str) -> None:
    """docs/install-service.md: the service, and jobs of a user that it records."""
    _point(host, "HEAD")
    _serve(host)
    _record(host)
    host.run("root", "profctl doctor; systemctl status --no-pager profd")
    host.run("root", f'python3 -c "import urllib.request; print({_METRICS})"', loopback=True)


def remove(host: BareHost, _before: str) -> None:
    """docs/operations.md: nothing of the service is left. Raises Failed with what is."""
    host.run("root", block(OPERATIONS, "Remove"))
    left = sorted(set(_files(host)) - set((host.root / "srv/files").read_text().splitlines()))
    if left:
        raise Failed("left behind by the removal:\n  " + "\n  ".join(left))
    print("nothing of the service is left")


def upgrade(host: BareHost, before: str) -> None:
    """docs/operations.md: an earlier commit's service with traces, and then today's, with the same traces."""
    _point(host, before)
    _serve(host)
    _record(host)
    kept = _kept(host)
    _point(host, "HEAD")
    host.run("root", f"cd profd\n{block(OPERATIONS, 'Upgrade')}")
    _is_kept(host, kept, "the upgrade")
    _record(host)


def restore(host: BareHost, _before: str) -> None:
    """docs/operations.md: a backup, the loss of all traces, and what was backed up."""
    kept = _kept(host)
    host.run("root", block(OPERATIONS, "Back up and restore"))
    host.run("root", "systemctl stop profd; cd /var/lib/profd; rm -r traces records catalog*")
    host.run("root", block(OPERATIONS, "Back up and restore", 1))
    _is_kept(host, kept, "the restore")


STEPS: Final[dict[str, Callable[[BareHost, str], None]]] = {
    each.__name__: each for each in (demo, first_answer, tests, service, remove, upgrade, restore)
}


def _point(host: BareHost, commit: str) -> None:
    """Make a commit of this checkout the one that strangers clone and pull."""
    bare = host.root / CLONED[1:]
    if not bare.exists():
        _git("init", "-q", "--bare", "-b", "main", str(bare))
    _git("push", "-q", "--force", str(bare), f"{commit}:refs/heads/main")
    # Git asks for that where somebody clones another's folder, and not by the network.
    (host.root / "etc/gitconfig").write_text("[safe]\n\tdirectory = *\n")


def _git(*arguments: str) -> None:
    subprocess.run(["git", "-C", str(HERE), *arguments], check=True)


def _serve(host: BareHost) -> None:
    names = host.root / "srv/files"  # before profd
    if not names.exists():
        host.run("root", block(SERVICE, "Before").partition("\n")[0])  # the packages
        names.write_text("\n".join(_files(host)))
    blocks = block(SERVICE, "Before"), block(SERVICE, "With systemd"), block(SERVICE, "With systemd", 1)
    host.run("root", "rm -rf profd\n" + "\n".join(blocks))


def _record(host: BareHost) -> None:
    """A user's job, attached, and one that is not: each is recorded, and gives an answer."""
    # Once: the jobs of an upgraded host go on with the client that they have.
    light = f"rm -rf light; git clone -q {CLONED} light; python3 -m venv venv; venv/bin/pip install -q ./light"
    host.run(USER, f"test -x venv/bin/profctl || {{ {light}; }}\n{_JOB}")
    for command in ("profctl run -- python train.py", "python train.py"):
        ends = "trap 'kill $PID' EXIT"
        host.run(USER, f"PATH=$PWD/venv/bin:$PATH; {command} & PID=$!; {ends}; sleep 3\n{_ASKED}")


def _kept(host: BareHost) -> str:
    """What users know by name: traces, captures, and the settings."""
    ids = "python3 -c 'import json,sys; print(sorted(each[\"id\"] for each in json.load(sys.stdin)))'"
    listed = f"profctl list --json | {ids}; profctl captures --json | {ids.replace('id', 'capture', 1)}"
    return host.output("root", f"{listed}; cat /etc/profd/profd.toml; id profd-worker")


def _is_kept(host: BareHost, kept: str, what: str) -> None:
    if (now := _kept(host)) != kept:
        raise Failed(f"{what} changed\n{kept}\ninto\n{now}")
    print(f"after {what} as before:\n{now}")


def _metrics_are_free() -> None:
    """`profd --check` is run in this machine's network, and names what has its port. Raises Failed."""
    with socket.socket() as tried:
        try:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind(METRICS)
        except OSError as error:
            raise Failed(f"{METRICS[0]}:{METRICS[1]}: {error.strerror}; stop what listens there (ss -ltnp)") from error


def _files(host: BareHost) -> list[str]:
    """Every name on its disk that is not someone else's."""
    return sorted(name for name in host.output("root", "find / -xdev").splitlines() if not _NOT_OURS.match(name))


def main() -> int:
    """The exit code: 1 where a step fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path, help="the folder of the Debian; made where it is not there")
    parser.add_argument("steps", nargs="*", help=f"of these: {' '.join(STEPS)} (all of them, and `remove` again)")
    parser.add_argument("--mirror", default="http://deb.debian.org/debian", help="of Debian's packages")
    parser.add_argument("--copy", action="append", default=[], metavar="FROM:TO", help="a file, such as pip's settings")
    parser.add_argument(
        "--bind", action="append", default=[], metavar="FOLDER", help="a folder that these settings name"
    )
    parser.add_argument("--before", default="HEAD~200", help="the commit that `upgrade` begins with (HEAD~200)")
    given = parser.parse_intermixed_args()
    try:
        if not (given.root / "etc/debian_version").exists():
            install(given.root, given.mirror)
        for copied in given.copy:
            source, _, to = copied.partition(":")
            subprocess.run(["install", "-D", "-m", "644", source, f"{given.root}{to or source}"], check=True)
        _metrics_are_free()
        with booted(given.root, given.bind) as host:
            with suppress(Failed):  # there is one from an earlier run
                host.output("root", f"useradd --create-home --shell /bin/bash {USER}")
            _point(host, "HEAD")
            for name in given.steps or [*STEPS, "remove"]:
                begun = time.monotonic()
                STEPS[name](host, given.before)
                print(f"=== {name}: {time.monotonic() - begun:.0f} s", flush=True)
    except Failed as failed:
        print(f"bare_root: {failed}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
