"""Settings: precedence, defaults of the modes, and errors that name the place."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from profd import main
from profd.errors import BadInput
from profd.host import config
from profd.host.config import Settings

DOCS = Path(__file__).parents[4] / "docs" / "configuration.md"


def load(flags: dict[str, Any] | None = None, environ: dict[str, str] | None = None, **more: Any) -> config.Config:
    return config.load(flags or {}, environ or {}, **more)


def test_flags_win_over_environment_over_file(tmp_path: Path) -> None:
    file = tmp_path / "profd.toml"
    file.write_text(
        'workers = 3\nlog_level = "debug"\nadmin_group = "a"\n[kineto]\nabstract = false\nsocket_dir = "/k"'
    )
    environ = {"PROFD_WORKERS": "4", "PROFD_LOG_LEVEL": "error", "PROFD_KINETO_SOCKET_DIR": "/e"}
    found = load({"workers": 5}, environ, file=file)
    assert (found.workers, found.log_level, found.admin_group) == (5, "error", "a")
    assert (found.kineto_socket_dir, found.kineto_abstract) == (Path("/e"), False)


def test_defaults_of_the_modes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setattr(config, "SYSTEM_FILE", tmp_path / "none")
    root = load()
    assert (root.state_dir, root.socket) == (Path("/var/lib/profd"), Path("/run/profd/profd.sock"))
    assert (root.metrics, root.metrics_asked_for, root.mode) == (("127.0.0.1", 9477), True, "root")
    assert root.disabled_file == Path("/etc/profd/disabled")
    user = load(user=True)
    assert user.state_dir == Path("/home/ada/.local/state/profd")
    assert user.socket == user.state_dir / "profd.sock"
    assert (user.metrics_asked_for, user.disabled_file) == (False, user.state_dir / "disabled")
    assert user.store_bytes is None
    runtime = load(environ={"XDG_RUNTIME_DIR": str(tmp_path)}, user=True)
    assert runtime.socket == tmp_path / "profd" / "profd.sock"
    assert runtime.control == tmp_path / "profd" / "control.sock"
    assert runtime.kineto_socket_dir == tmp_path / "profd" / "kineto"


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a folder away takes root")
def test_a_runtime_directory_of_somebody_elses_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients look for no daemon there, either (profclient.address)."""
    monkeypatch.setattr(config, "SYSTEM_FILE", tmp_path / "none")
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    os.chown(runtime, 65534, 65534)
    found = load(environ={"XDG_RUNTIME_DIR": str(runtime)}, user=True)
    assert found.socket == found.state_dir / "profd.sock"


def test_user_mode_reads_the_systems_file_only_when_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system = tmp_path / "profd.toml"
    system.write_text("workers = 9")
    monkeypatch.setattr(config, "SYSTEM_FILE", system)
    assert load().workers == 9
    assert load(user=True).workers == 2
    assert load(user=True, file=system).workers == 9


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("wrokers = 3", "wrokers"),
        ("[kineto]\nsoket = 1", "soket"),
        ('workers = "many"', r"\$.workers"),
        ("workers = [1]", r"\$.workers"),
        ('workers = "2"', "Write workers = 2 without quotes"),
        ('[kineto]\nabstract = "True"', "Write abstract = true without quotes"),
        ("workers = ", "not TOML"),
        ("workers = 0", "1 to 64"),
        ('log_level = "loud"', "log_level"),
        ('log_format = "xml"', "log_format"),
        ('metrics = "9477"', "host:port"),
        ('metrics = "localhost:99999"', "host:port"),
        ('[audit]\ncopy = "mail"', "off, journald or syslog"),
        ('store_bytes = "a lot"', "store_bytes"),
        ("store_bytes = -1", "store_bytes"),
        (f'socket = "/{"x" * 107}"', "107 bytes"),
    ],
)
def test_errors_name_the_key_and_the_file(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "profd.toml"
    file.write_text(text)
    with pytest.raises(BadInput, match=said) as caught:
        load(file=file)
    if "\\$" in said or said in ("wrokers", "soket"):
        assert str(file) in str(caught.value)


def test_file_that_was_named_must_exist(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot be read.*Correct its path"):
        load(file=tmp_path / "none")


def test_file_that_is_a_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=f"{tmp_path} is a directory; name the file in it"):
        load(file=tmp_path)


def test_variables_are_text_and_converted() -> None:
    found = load(environ={"PROFD_WORKERS": "4", "PROFD_KINETO_ABSTRACT": "false"}, user=True)
    assert (found.workers, found.kineto_abstract) == (4, False)


def test_origins_name_the_layer_that_won(tmp_path: Path) -> None:
    file = tmp_path / "profd.toml"
    file.write_text("workers = 3\n[kineto]\nabstract = false")
    _, given = config.load_with_origins({"log_level": "debug"}, {"PROFD_WORKERS": "4"}, file=file)
    assert given == {
        "workers": ("4", "the environment"),
        "kineto.abstract": (False, str(file)),
        "log_level": ("debug", "the command line"),
    }


def test_error_in_the_environment_says_so() -> None:
    with pytest.raises(BadInput, match="the environment"):
        load(environ={"PROFD_WORKERS": "many"}, user=True)


@pytest.mark.parametrize(
    ("text", "size"),
    [("1000", 1000), ("1K", 1000), ("1KiB", 1024), ("1.5GiB", 3 << 29), ("2 TB", 2 * 10**12), ("20gib", 20 << 30)],
)
def test_sizes(text: str, size: int) -> None:
    assert load({"store_bytes": text}, user=True).store_bytes == size


@pytest.mark.parametrize(("text", "address"), [("off", None), ("[::1]:80", ("::1", 80)), ("0.0.0.0:0", ("0.0.0.0", 0))])
def test_addresses(text: str, address: tuple[str, int] | None) -> None:
    assert load({"metrics": text}, user=True).metrics == address


def test_every_setting_is_documented_and_every_flag_exists() -> None:
    rows = [line for line in DOCS.read_text().splitlines() if line.startswith("| `") and "PROFD_" in line]
    documented = [(re.sub(r"\[(\w+)\] ", r"\1.", row.split("`")[1]), row) for row in rows]
    assert {key for key, _ in documented} == set(config.every_key())
    for key, row in documented:
        assert f"`{config.variable(key)}`" in row
    flags = set(re.findall(r"`(--[a-z-]+)", "\n".join(rows))) - {"--user"}
    assert flags <= {option for action in main._parser()._actions for option in action.option_strings}


def test_settings_are_strict() -> None:
    assert msgspec.convert({}, Settings) == Settings()


def test_an_observer_is_built_or_not() -> None:
    assert config.load({}, {}, user=True).build_observers
    assert not config.load({}, {"PROFD_TORCH_BUILD": "off"}, user=True).build_observers
    with pytest.raises(BadInput, match=r"torch\.build = 'never': give auto or off"):
        config.load({"torch": {"build": "never"}}, {}, user=True)


def test_a_wrong_setting_ends_with_code_1_and_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["--user", "--workers", "0"]) == 1
    assert capsys.readouterr().err == "profd: workers = 0: give 1 to 64\n"


def test_a_wrong_flag_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main.main(["--no-such-flag"])
    assert caught.value.code == 2
