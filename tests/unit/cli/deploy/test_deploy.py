"""Units, image and compose file in `deploy/` name existing commands, settings, files and services."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from parsed_commands import parse

from tianzhou.cli.conf_files import read_conf
from tianzhou.cli.serving.server_settings import broker_settings
from tianzhou.namesrv.changeable_settings import RULES
from tianzhou.namesrv.settings import NamesrvSettings
from tianzhou.setting_rules import check
from tianzhou.settings import bind

ROOT = Path(__file__).resolve().parents[4]
DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, Any] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if service["image"].startswith("tianzhou")}
DOCKERFILE = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")


def directives(unit: Path) -> dict[str, str]:
    return dict(
        line.split("=", 1) for line in unit.read_text(encoding="utf-8").splitlines() if re.match(r"[A-Z]\w+=", line)
    )


def test_a_command_that_is_none_would_be_noticed() -> None:
    with pytest.raises(Exception, match="such option"):
        parse(["broker", "--nothing"])
    with pytest.raises(Exception, match="such command"):
        parse(["brokr"])


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_runs_a_command_that_notifies(unit: Path) -> None:
    set_to = directives(unit)
    program, *args = shlex.split(set_to["ExecStart"])
    assert program.endswith("/tianzhou")
    parse(args)
    assert set_to["Type"] == "notify"
    assert set_to["KillSignal"] == "SIGTERM"
    assert int(set_to["TimeoutStopSec"].removesuffix("s")) > 5, "the server ends itself after five seconds"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd")
def test_units_are_what_systemd_takes(tmp_path: Path) -> None:
    assert len(UNITS) == 2
    for unit in UNITS:
        text = unit.read_text(encoding="utf-8").replace("/opt/tianzhou/bin/tianzhou", "/bin/true")
        (tmp_path / unit.name).write_text(text, encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *(str(tmp_path / unit.name) for unit in UNITS)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, [line for line in done.stderr.splitlines() if "tianzhou" in line]) == (0, [])


def test_the_image_copies_what_is_there_and_runs_as_nobody_special() -> None:
    bases = re.findall(r"^FROM (\S+) AS (\S+)$", DOCKERFILE, re.MULTILINE)
    assert bases[-1][1] == "server", "the stage that is built without --target has no console"
    for sources in re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE):
        for source in sources.split():
            assert (ROOT / source).exists(), source
            ignored = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
            assert f"!{source}" in ignored, f"the build does not get {source}"
    assert re.search(r"^USER tianzhou$", DOCKERFILE, re.MULTILINE)
    (arguments,) = re.findall(r"^CMD (.*)$", DOCKERFILE, re.MULTILINE)
    parse(yaml.safe_load(arguments))
    (probe,) = re.findall(r"^    CMD (.*)$", DOCKERFILE, re.MULTILINE)
    parse(yaml.safe_load(probe)[1:])


@pytest.mark.parametrize("name", OURS)
def test_a_service_runs_a_command_that_there_is(name: str) -> None:
    service = OURS[name]
    parse(service["command"])
    assert service["healthcheck"].get("disable") or service["healthcheck"]["test"][0] == "CMD"
    for test in [service["healthcheck"].get("test", ["CMD", "python", "-c", ""])]:
        compile(test[3], name, "exec")


@pytest.mark.parametrize("name", OURS)
def test_the_image_of_a_service_is_the_target_with_its_libraries(name: str) -> None:
    service = OURS[name]
    of_console = service["command"][0].startswith("console")
    image, target = ("tianzhou-console", "console") if of_console else ("tianzhou", "server")
    assert (service["image"].split(":")[0], service["build"]["target"]) == (image, target)
    stage = DOCKERFILE[DOCKERFILE.index(f"AS {target}\n") :].partition("\nFROM ")[0]
    assert f"COPY --from={target}-environment /opt/tianzhou /opt/tianzhou" in stage


LOCKS = {"server": "fast", "console": "console"}
"""The extra with the packages pinned in the lock of each image."""


@pytest.mark.parametrize("lock", LOCKS)
def test_the_lock_of_an_image_pins_what_the_package_needs_and_no_more(lock: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"][LOCKS[lock]]]
    pins = re.findall(r"^(\S+)==(\S+)", (ROOT / "locks" / f"{lock}.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert {re.split(r"[\[<>=;]", one)[0] for one in needed} - {"tianzhou"} <= {name for name, _ in pins}
    assert not {"pyspark", "pytest", "pandas"} & {name for name, _ in pins}
    developed = re.findall(r"^(\S+)==(\S+)", (ROOT / "locks" / "dev.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(pins) <= set(developed), "images run the versions that are tested; scripts/lock makes the locks again"


@pytest.mark.parametrize("name", SERVICES)
def test_what_a_service_needs_is_declared(name: str) -> None:
    service = SERVICES[name]
    assert set(service.get("depends_on", {})) <= SERVICES.keys()
    assert set(service.get("networks", [])) <= COMPOSE["networks"].keys()
    for volume in service["volumes"]:
        source = volume.split(":")[0]
        assert (DEPLOY / source).exists() if source.startswith(".") else source in COMPOSE["volumes"], source


def test_the_services_are_two_name_servers_master_slave_and_console() -> None:
    assert {"namesrv1", "namesrv2", "master", "slave", "console", "prometheus"} <= SERVICES.keys()
    assert (DEPLOY / SERVICES["console"]["build"]["context"]).resolve() == ROOT


@pytest.mark.parametrize("role", ["master", "slave"])
def test_a_broker_of_the_compose_file_starts_with_its_settings(role: str, capsys: pytest.CaptureFixture[str]) -> None:
    settings, store, _ = broker_settings(DEPLOY / "compose" / f"{role}.conf", "")
    assert capsys.readouterr().err == ""
    assert settings.broker_ip1 == SERVICES[role]["networks"]["mq"]["ipv4_address"]
    assert {part.split(":")[0] for part in settings.namesrv_addr.split(";")} <= SERVICES.keys()
    assert store.root == Path("/data/store")


def test_a_name_server_of_the_compose_file_starts_with_its_settings() -> None:
    path = DEPLOY / "compose" / "namesrv.conf"
    settings = bind(NamesrvSettings, read_conf(path, NamesrvSettings), source=str(path))
    check(RULES, settings, source=str(path))
