"""The pictures of docs/ui.md anew, from the page as it is: `.venv/bin/python tools/page_pictures.py [NAME …]`.

A daemon of its own records a training loop with torch in it, imports made-up jobs to compare, ranks and memory, and
Chromium goes to each page. Look at each picture before you commit it. NAME: only these, without
`ui-` and `.png`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.integration.ui.conftest import DRAWN, GO, event  # noqa: E402
from tests.integration.ui.test_memory_and_devices import MARKUP, leaking  # noqa: E402
from tests.support.chromium import REQUIRED, chromium  # noqa: E402
from tests.support.daemon import running_daemon  # noqa: E402
from tests.support.perfetto import Perfetto  # noqa: E402
from tests.support.simulated_job import Plan, files  # noqa: E402

IMAGES: Final = ROOT / "docs" / "images"
BIN: Final = Path(sys.executable).parent
SETTLE_MS: Final = 300_000
PROGRAM: Final = """
import io, itertools, os
os.environ.setdefault("OMP_NUM_THREADS", "1")
import torch
from torch import nn

def save(model):
    for _ in range(15):
        torch.save(model.state_dict(), io.BytesIO())

def train(model, optimizer, inputs, labels):
    loss = nn.functional.cross_entropy(model(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.LayerNorm(512), nn.Linear(512, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in itertools.count(1):
        train(model, optimizer, torch.randn(64, 256), torch.randint(0, 10, (64,)))
        if step % 40 == 0:
            save(model)
        if step == 3:
            print("training", flush=True)

main()
"""

# Whatever else runs on the host is not for a picture.
OURS_ALONE: Final = """() => {
  for (const row of document.querySelectorAll(".now tbody tr")) {
    if (!row.lastElementChild.textContent.endsWith("train.py")) row.style.display = "none";
  }
}"""


@dataclass(eq=False)
class Shown:
    """The page in a tab, and what is there to be shown."""

    tab: Any
    url: str
    environ: dict[str, str]
    folder: Path

    def go(self, page: str) -> Any:
        """To a page, until everything in it is there."""
        self.tab.evaluate(GO, f"#{page}")
        self.tab.wait_for_selector("h1")
        self.tab.wait_for_selector("[aria-busy]", state="detached", timeout=SETTLE_MS)
        self.tab.evaluate(DRAWN)
        return self.tab

    def ask(self, *words: str) -> Any:
        """What `profctl` prints."""
        done = subprocess.run([BIN / "profctl", *words, "--json"], env=self.environ, capture_output=True, check=True)
        return json.loads(done.stdout)

    def picture(self, name: str, height: int, top: str = "") -> None:
        """What is seen from the region of this name on."""
        self.tab.set_viewport_size({"width": 1280, "height": height})
        self.tab.evaluate(DRAWN)
        region = f'section[aria-label="{top}"]' if top else "body"
        self.tab.evaluate("(of) => document.querySelector(of).scrollIntoView({ block: 'start' })", region)
        self.tab.evaluate(DRAWN)
        self.tab.screenshot(path=IMAGES / f"ui-{name}.png")
        print(f"docs/images/ui-{name}.png", flush=True)


def main(names: list[str]) -> None:
    """Make these pictures; none: all."""
    os.environ[REQUIRED] = "1"
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pp-")))
        (folder / "train.py").write_text(PROGRAM)
        daemon = stack.enter_context(running_daemon(user=os.geteuid() != 0))
        browser = stack.enter_context(chromium())
        url = stack.enter_context(_served(daemon.environ))
        tab = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
        tab.goto(url)
        tab.wait_for_url("**/#/now")
        shown = Shown(tab, url.partition("#")[0], daemon.environ, folder)
        for name, make in PICTURES.items():
            if not names or name in names:
                make(shown)


@contextmanager
def _served(environ: dict[str, str]) -> Iterator[str]:
    words = [BIN / "profctl", "ui", "--write", "--no-browser", "now"]
    with subprocess.Popen(words, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            yield _line(server)
        finally:
            server.terminate()


def _environ(shown: Shown) -> dict[str, str]:
    """Of programs that find this environment's python, and keep what is built for them here."""
    return {**shown.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(shown.folder / "cache")}


@contextmanager
def _job(shown: Shown, **environ: str) -> Iterator[subprocess.Popen[str]]:
    """The program, once it trains."""
    command = [BIN / "profctl", "run", "--", "python", "train.py"]
    with subprocess.Popen(
        command, env={**_environ(shown), **environ}, cwd=shown.folder, stdout=subprocess.PIPE, text=True
    ) as job:
        try:
            _line(job)
            yield job
        finally:
            job.terminate()


def _line(process: subprocess.Popen[str]) -> str:
    """The next that it prints."""
    return process.stdout.readline().strip() if process.stdout else ""


@cache
def _recorded(shown: Shown) -> str:
    """A trace of two seconds of the program with operators and calls."""
    subprocess.run([BIN / "profctl", "torch", "build"], env=_environ(shown), check=True)
    with _job(shown) as job:
        shown.ask("start", "--pid", str(job.pid), "--stacks", "--duration", "2s")
    return str(shown.ask("list")[0]["id"])


def _slow(shown: Shown, trace: str) -> int:
    """The longest step."""
    return int(max(shown.ask("steps", trace)["steps"], key=lambda step: step["duration_ns"])["number"])


def _imported(shown: Shown, name: str, events: list[dict[str, Any]]) -> str:
    path = shown.folder / f"{name}.json"
    path.write_text(json.dumps({"traceEvents": events}))
    return str(shown.ask("import", str(path))["trace"])


def _job_of(gelu: int) -> list[dict[str, Any]]:
    """Thirty steps of a small network; an operator of it takes so many us, and its backward pass twice as long."""
    events, at = [], 0.0
    for number in range(30):
        jitter = 1 + 0.02 * (number * 7 % 5)
        calls = {"train.py(20): forward": ("aten::addmm", "aten::gelu", "aten::layer_norm", "aten::addmm")}
        calls["torch/_tensor.py(566): backward"] = ("AddmmBackward0", "GeluBackward0", "NativeLayerNormBackward0")
        calls["torch/optim/adam.py(220): step"] = ("aten::_foreach_add_", "aten::_foreach_addcdiv_")
        begun = at
        for caller, ops in calls.items():
            first = at
            for op in ops:
                lasts = jitter * {"aten::gelu": gelu, "GeluBackward0": 2 * gelu}.get(op, 700)
                events.append(event(op, at + 10, lasts))
                at += lasts + 20
            events.append(event(caller, first + 5, at - first, "python_function"))
            at += 10
        events.append(event(f"ProfilerStep#{number}", begun, at - begun, "user_annotation"))
        at += 10
    return events


def trace(shown: Shown) -> None:
    """The answer, findings, and steps."""
    shown.go(f"/trace/{_recorded(shown)}")
    shown.picture("trace", 1020)


def step(shown: Shown) -> None:
    """The slow step, in dark."""
    made = _recorded(shown)
    shown.tab.emulate_media(color_scheme="dark")
    shown.go(f"/trace/{made}?step={_slow(shown, made)}")
    shown.picture("step", 760, "Flame graph")
    shown.tab.emulate_media(color_scheme="light")


def timeline(shown: Shown) -> None:
    """An operator that was searched for within a step."""
    made = _recorded(shown)
    tab = shown.go(f"/trace/{made}?step=7")
    region = tab.get_by_role("region", name="Timeline")
    search = region.get_by_role("searchbox")
    search.fill("AddmmBackward0")
    search.press("Enter")
    region.get_by_text("events found.").wait_for()
    search.press("Enter")
    region.locator(".event dt", has_text="forward").wait_for()
    tab.get_by_role("application", name="Timeline").focus()
    shown.tab.wait_for_selector("[aria-busy]", state="detached")
    shown.picture("timeline", 900, "Timeline")


def compare(shown: Shown) -> None:
    """Two made-up jobs: one operator takes longer."""
    a, b = (_imported(shown, f"train-{gelu}", _job_of(gelu)) for gelu in (300, 900))
    shown.go(f"/compare/{a}/{b}")
    shown.picture("compare", 900)


def memory(shown: Shown) -> None:
    """Made-up allocations and device work."""
    events = json.loads(json.dumps(leaking()).replace(json.dumps(MARKUP)[1:-1], "train.py(12): keep"))
    shown.go(f"/trace/{_imported(shown, 'train', events)}")
    shown.picture("memory", 780, "Memory")


def ranks(shown: Shown) -> None:
    """Rank 5 of 8 is late in every tenth step."""
    folder = shown.folder / "ranks"
    folder.mkdir(exist_ok=True)
    paths = files(folder, Plan(ranks=8, steps=120, late={5: 3_000_000}, every=10))
    capture = shown.ask("import", "--together", *map(str, paths))[0]["capture"]
    shown.go(f"/ranks/{capture}")
    shown.picture("ranks", 800)


def now(shown: Shown) -> None:
    """A capture of two ranks goes on, and the estimate of another one."""
    with ExitStack() as stack:
        jobs = [stack.enter_context(_job(shown, RANK=rank, WORLD_SIZE="2", LOCAL_RANK=rank)) for rank in ("0", "1")]
        alone = stack.enter_context(_job(shown))
        tab = shown.tab
        tab.evaluate(GO, "#/now")
        tab.get_by_role("checkbox", name=f"Record {alone.pid}", exact=True).check()
        tab.get_by_role("region", name="Estimate").get_by_role("button", name="Start", exact=True).wait_for()
        pids = [word for job in jobs for word in ("--pid", str(job.pid))]
        begun = subprocess.Popen(
            [BIN / "profctl", "start", *pids, "--duration", "30s"],
            env=shown.environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        both = r"""() => [...document.querySelectorAll(".grows")]
          .filter((one) => /window \d/.test(one.textContent)).length > 1"""
        tab.wait_for_function(both, timeout=SETTLE_MS)
        tab.evaluate(OURS_ALONE)
        shown.picture("now", 940)
        begun.terminate()
        begun.wait()


def perfetto(shown: Shown) -> None:
    """Perfetto at the window of the timeline."""
    tab = shown.go(f"/trace/{_recorded(shown)}?step=7")
    tab.get_by_role("button", name="Open in Perfetto").click()
    tab.wait_for_selector(".perfetto:not([aria-busy])", state="attached", timeout=SETTLE_MS)
    opened = Perfetto(tab)
    opened.frame.get_by_text("unfold_more").first.click()
    opened.rows("SELECT count(*) FROM slice")
    tab.mouse.move(640, 500)
    opened.frame.wait_for_timeout(3000)  # it draws when it likes, and does not say when it is done
    shown.picture("perfetto", 800)


PICTURES: Final[dict[str, Callable[[Shown], None]]] = {
    one.__name__: one for one in (trace, step, timeline, compare, memory, ranks, perfetto, now)
}

if __name__ == "__main__":
    main(sys.argv[1:])
