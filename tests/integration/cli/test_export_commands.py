"""`profctl export -f …`, `import` of a bundle, and `open`, with a daemon and on a store alone."""

import contextlib
import gzip
import io
import json
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.integration.cli.conftest import EITHER, PROFCTL
from tests.support.perfetto import needs_perfetto
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cli")]

SECONDS = 60
BASE = 1_700_000_000_000_000_000


def event(name, ts, dur, cat="cpu_op", **more):
    return {"ph": "X", "cat": cat, "name": name, "pid": 7, "tid": 7, "ts": ts, "dur": dur, **more}


TRACE = {
    "baseTimeNanoseconds": BASE,
    "traceEvents": [
        event("ProfilerStep#4", 100, 100, "user_annotation"),
        event("outer", 110, 50, args={"External id": 1, "Input Dims": [[2, 3]], "secret": "hunter2"}),
        event("inner", 120, 20),
        event("ProfilerStep#5", 200, 100, "user_annotation"),
        event("aten::mm", 210, 10, args={"Input Dims": [[2, 3], [3, 4]], "Input type": ["float", "float"]}),
    ],
}


on_both = pytest.mark.parametrize("options", ["daemon", "store"], indirect=True)


@pytest.fixture(scope="module", params=EITHER)
def options(request, tmp_path_factory):
    """What a command line begins with: nothing for the daemon, or a directory."""
    return [] if request.param == "daemon" else ["--store", str(tmp_path_factory.mktemp("store"))]


@pytest.fixture(scope="module")
def profctl(host, options):
    return lambda *arguments: host.profctl(*options, *arguments)


@pytest.fixture(scope="module")
def trace(profctl, tmp_path_factory):
    file = tmp_path_factory.mktemp("in") / "x.json.gz"
    file.write_bytes(gzip.compress(json.dumps(TRACE).encode()))
    done = profctl("import", str(file), "--json")
    assert done.code == 0, done.err
    return done.json["trace"]


def exported(profctl, trace, path, *more):
    done = profctl("export", trace, "-o", str(path), *more)
    assert done.code == 0, done.err
    return path.read_bytes()


def names(data):
    return [entry["name"] for entry in json.loads(data)["traceEvents"] if entry["ph"] == "X"]


@on_both
def test_every_format(profctl, trace, tmp_path):
    assert pq.read_table(io.BytesIO(exported(profctl, trace, tmp_path / "x.parquet", "-f", "parquet"))).num_rows == 5
    assert b"inner" in gzip.decompress(exported(profctl, trace, tmp_path / "x.pb.gz", "-f", "pprof"))
    assert b"inner" in exported(profctl, trace, tmp_path / "x.pftrace", "-f", "perfetto")
    assert json.loads(exported(profctl, trace, tmp_path / "x.json", "-f", "speedscope"))["profiles"]
    refused = profctl("export", trace, "-f", "parquet", "-o", str(tmp_path / "x.parquet.gz"))
    assert refused.code == 2
    assert "without .gz" in refused.err


def test_parts(profctl, trace, tmp_path):
    file = tmp_path / "x.json"
    assert names(exported(profctl, trace, file, "--step", "5")) == ["ProfilerStep#5", "aten::mm"]
    assert len(names(exported(profctl, trace, file, "--step", "4..5"))) == 5
    assert names(exported(profctl, trace, file, "--min-duration", "30us", "--step", "4")) == ["ProfilerStep#4", "outer"]
    missing = profctl("export", trace, "--step", "9", "-o", str(file))
    assert missing.code == 2
    assert "its steps are 4..5" in missing.err
    assert profctl("export", trace, "--step", "4", "--window", "1us..", "-o", str(file)).code == 2
    assert profctl("export", trace, "--step", "5..4", "-o", str(file)).code == 2


def test_a_window_beyond_the_trace_is_empty_and_said(profctl, trace, tmp_path):
    file = tmp_path / "x.json"
    done = profctl("export", trace, "--window", "1s..2s", "-o", str(file))
    assert done.code == 0
    assert "the window is empty" in done.err
    whole = done.err.partition("All of the trace: ")[2].split()[:2]
    assert names(file.read_bytes()) == []
    done = profctl("export", trace, *whole, "-o", str(file))
    assert "there is nothing" not in done.err
    assert len(names(file.read_bytes())) == 5


def test_redaction(profctl, trace, tmp_path):
    assert b"hunter2" not in exported(profctl, trace, tmp_path / "x.json", "--redact", "values")
    assert b"hunter2" in exported(profctl, trace, tmp_path / "x.json", "--redact", "paths,names")
    assert profctl("export", trace, "--redact", "all", "-o", str(tmp_path / "x.json")).code == 2
    assert profctl("export", trace, "-f", "folded", "--redact", "names", "-o", str(tmp_path / "x.txt")).code == 2


@on_both
def test_a_bundle_comes_back(profctl, trace, tmp_path):
    file = tmp_path / "x.profd"
    whole = exported(profctl, trace, file, "-f", "bundle")
    done = profctl("import", str(file), "--json")
    assert done.code == 0, done.err
    back = done.json["trace"]
    assert back != trace
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    assert exported(profctl, trace, one) == exported(profctl, back, two)
    assert profctl("show", back, "--json").json["trace"]["title"] == "x.json.gz"
    exported(profctl, trace, file, "-f", "bundle", "--redact", "values", "--step", "4")
    done = profctl("import", str(file), "--json")
    assert (done.code, done.json["events"]) == (0, 3), done.err
    file.write_bytes(whole[:-3000])
    cut = profctl("import", str(file))
    assert cut.code == 1
    assert "the bundle is damaged" in cut.err


def test_top_by_flops_and_shapes(profctl, trace):
    rows = profctl("top", trace, "--sort-by", "flops", "--group-by-input-shape", "--json").json
    assert (rows[0]["name"], rows[0]["flops"], rows[0]["input_shapes"]) == ("aten::mm", 48, [[2, 3], [3, 4]])
    assert "48 FLOP" in profctl("top", trace).out


BROWSER = f"""#!{sys.executable}
import json, pathlib, re, sys, time, urllib.request
mine = pathlib.Path(sys.argv[0]).parent
(mine / "told").write_text(sys.argv[1])
(mine / "told").rename(mine / "asked")
while not (mine / "go").exists():
    time.sleep(0.01)
file = pathlib.Path(urllib.request.url2pathname(sys.argv[1].removeprefix("file://")))
form = file.read_text()
def post(address, body, **headers):
    return urllib.request.urlopen(urllib.request.Request(address, body, headers)).read()
url = re.search('action="([^"]+)enter"', form)[1]
key = re.search('name="key" value="([^"]+)"', form)[1]
entered = post(url + "enter", b"key=" + key.encode(), Origin="null").decode()
session, page = re.findall('content="([^"]+)"', entered)
(mine / "left").write_text(str(file.parent.exists()))
(mine / "page").write_text(page)
asked = json.dumps(dict(trace=page.split("/")[-1])).encode()
headers = {{"Content-Type": "application/json", "Authorization": "Bearer " + session}}
(mine / "part").write_bytes(post(url + "api/perfetto", asked, **headers))
(mine / "part").rename(mine / "trace")
"""


def told_in_proc():
    """What every process of this host has on its command line and in its environment."""
    for process in Path("/proc").glob("[0-9]*"):
        for file in ("cmdline", "environ"):
            with contextlib.suppress(OSError):
                yield (process / file).read_bytes()


@pytest.fixture
def opened(host, options, trace, tmp_path):
    """`profctl open` with a browser of ours."""
    browser = tmp_path / "browser"
    browser.write_text(BROWSER)
    browser.chmod(0o755)
    environ = {**host.daemon.environ, "BROWSER": str(browser), "TMPDIR": str(tmp_path)}
    command = [*PROFCTL, *options, "open", trace]
    with subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            (tmp_path / "go").touch()  # so that no browser stays
            process.kill()


@needs_perfetto
@on_both
def test_open_hands_the_trace_to_the_browser_and_tells_nobody_else(opened, trace, tmp_path):
    until((tmp_path / "asked").exists, "there is a browser")
    [folder] = tmp_path.glob("profctl-open-*")
    [file] = folder.iterdir()
    assert (tmp_path / "asked").read_text() == file.as_uri()
    assert [stat.S_IMODE(path.stat().st_mode) for path in (folder, file)] == [0o700, 0o600]
    # WHEN it runs, and any user looks at the host's processes
    [key] = re.findall('name="key" value="([^"]+)"', file.read_text())
    assert not [told for told in told_in_proc() if key.encode() in told]
    # THEN what it was given leads it to the trace
    (tmp_path / "go").touch()
    until((tmp_path / "trace").exists, "the browser has the trace")
    assert b"inner" in (tmp_path / "trace").read_bytes()
    assert (tmp_path / "page").read_text() == f"/perfetto/{trace}"
    assert (tmp_path / "left").read_text() == "False"


@needs_perfetto
def test_open_takes_its_file_with_it(opened, tmp_path):
    until((tmp_path / "asked").exists, "there is a browser")
    opened.send_signal(signal.SIGINT)
    assert opened.wait(SECONDS) == 130
    assert not list(tmp_path.glob("profctl-open-*"))


@needs_perfetto
def test_open_ends_with_ctrl_c(host, options, trace):
    command = [*PROFCTL, *options, "open", trace, "--no-browser"]
    with subprocess.Popen(command, env=host.daemon.environ, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("http://127.")
            process.send_signal(signal.SIGINT)
            assert process.wait(SECONDS) == 130
        finally:
            process.kill()
