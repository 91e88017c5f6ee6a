"""The Helm chart names existing values, commands and settings; where `helm` is installed, also its rendered objects."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
import yaml
from parsed_commands import parse

from tianzhou.broker.settings import BrokerSettings
from tianzhou.cli.conf_files import read_conf
from tianzhou.namesrv.settings import NamesrvSettings
from tianzhou.remoting.tls import TlsSettings, load_tls
from tianzhou.settings import bind
from tianzhou.store.settings import StoreSettings

CHART = Path(__file__).resolve().parents[4] / "deploy" / "helm" / "tianzhou"
TEMPLATES = sorted((CHART / "templates").iterdir())
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
HELM = shutil.which("helm")
needs_helm = pytest.mark.skipif(HELM is None, reason="there is no helm")
PROTECTED = ("--set", "tls.secret=mq-tls", "--set", "accounts.secret=mq-accounts")


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_templates_use_values_that_there_are(template: Path) -> None:
    for path in re.findall(r"\.Values\.([a-zA-Z.]+)", template.read_text(encoding="utf-8")):
        reduce(lambda values, key: values[key], path.split("."), VALUES)


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_templates_set_settings_that_there_are(template: Path, tmp_path: Path) -> None:
    keys = re.findall(r"^ *([a-zA-Z][a-zA-Z0-9.]*)=(?!\S*=)", template.read_text(encoding="utf-8"), re.MULTILINE)
    conf = tmp_path / "all.conf"
    conf.write_text("".join(f"{key}=\n" for key in keys), encoding="utf-8")
    assert list(read_conf(conf, BrokerSettings, StoreSettings, NamesrvSettings, TlsSettings)) == list(
        dict.fromkeys(keys)
    )


def test_the_values_of_brokers_are_settings(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in VALUES["broker"]["settings"].items()))
    bind(BrokerSettings, read_conf(conf, BrokerSettings, StoreSettings), source=str(conf))


@pytest.fixture
def rendered() -> Callable[..., list[dict[str, Any]]]:
    """Return a function for the objects that `helm template` renders."""

    def render(*more: str) -> list[dict[str, Any]]:
        done = subprocess.run(
            [str(HELM), "template", "mq", str(CHART), "--namespace", "queues", *more],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return [each for each in yaml.safe_load_all(done.stdout) if each]

    return render


def of_kind(objects: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each for each in objects if each["kind"] == kind}


def pods(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    found = of_kind(objects, "StatefulSet") | of_kind(objects, "Deployment")
    return {name: each["spec"]["template"]["spec"] for name, each in found.items()}


@needs_helm
def test_helm_finds_nothing_wrong() -> None:
    for more in ((), PROTECTED):
        done = subprocess.run(
            [str(HELM), "lint", "--strict", str(CHART), *more], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout


@needs_helm
def test_there_are_name_servers_brokers_with_their_slaves_and_the_console(
    rendered: Callable[..., list[dict[str, Any]]],
) -> None:
    objects = rendered()
    sets = of_kind(objects, "StatefulSet")
    assert sets.keys() == {"mq-tianzhou-namesrv", *(f"mq-tianzhou-broker-{n}-{i}" for n in "ab" for i in (0, 1))}
    assert sets["mq-tianzhou-namesrv"]["spec"]["replicas"] == 2
    assert of_kind(objects, "Deployment").keys() == {"mq-tianzhou-console"}
    services = of_kind(objects, "Service")
    for each in sets.values():
        service = services[each["spec"]["serviceName"]]["spec"]
        assert service["clusterIP"] == "None"
        assert service["selector"].items() <= each["spec"]["template"]["metadata"]["labels"].items()
        assert each["spec"]["selector"]["matchLabels"].items() <= each["spec"]["template"]["metadata"]["labels"].items()
        assert each["spec"]["volumeClaimTemplates"][0]["metadata"]["name"] == "data"
    assert "console" not in str(rendered("--set", "console.enabled=false"))


@needs_helm
@pytest.mark.parametrize("more", [(), PROTECTED], ids=["plain", "protected"])
def test_what_pods_run_and_read_is_there(rendered: Callable[..., list[dict[str, Any]]], more: tuple[str, ...]) -> None:
    objects = rendered(*more)
    maps = of_kind(objects, "ConfigMap")
    for name, pod in pods(objects).items():
        image = "tianzhou-console:0.1.0" if name == "mq-tianzhou-console" else "tianzhou:0.1.0"
        assert {each["image"] for each in pod["containers"] + pod.get("initContainers", [])} == {image}
        volumes = {volume["name"]: volume for volume in pod["volumes"]} | {"data": {}}
        assert pod["securityContext"]["runAsNonRoot"] is True
        for container in pod["containers"] + pod.get("initContainers", []):
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            if "command" not in container:
                parse([str(argument) for argument in container["args"]])
            for mount in container.get("volumeMounts", []):
                assert mount["name"] in volumes
        for volume in volumes.values():
            if "configMap" in volume:
                assert volume["configMap"]["name"] in maps
        (container,) = pod["containers"]
        ports = {port["name"] for port in container["ports"]}
        for probe in ("startupProbe", "livenessProbe"):
            assert container[probe]["httpGet"]["path"] == "/healthz"
            assert container[probe]["httpGet"]["port"] in ports
        if "metrics" in ports:
            wanted = "HTTPS" if more else "HTTP"
            assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "metrics", "scheme": wanted}


@needs_helm
@pytest.mark.parametrize("more", [(), PROTECTED], ids=["plain", "protected"])
def test_servers_take_their_configuration(
    rendered: Callable[..., list[dict[str, Any]]], more: tuple[str, ...], tmp_path: Path
) -> None:
    roles = {}
    for name, each in of_kind(rendered(*more), "ConfigMap").items():
        (kind,) = [kind for kind in ("broker", "namesrv") if f"{kind}.conf" in each["data"]]
        conf = tmp_path / f"{name}.conf"
        conf.write_text(each["data"][f"{kind}.conf"], encoding="utf-8")
        tls = load_tls(read_conf(conf, BrokerSettings, StoreSettings, NamesrvSettings, TlsSettings), source=name)
        assert tls.server_mode == ("enforcing" if more else "permissive")
        if kind == "namesrv":
            namesrv = bind(NamesrvSettings, read_conf(conf, NamesrvSettings, TlsSettings), source=name)
            assert namesrv.acl_enable == bool(more)
            continue
        values = read_conf(conf, BrokerSettings, StoreSettings, TlsSettings)
        broker, store = bind(BrokerSettings, values, source=name), bind(StoreSettings, values, source=name)
        assert broker.broker_ip1 == f"{name}-0.mq-tianzhou-broker.queues.svc"
        assert broker.namesrv_addr.split(";") == [
            f"mq-tianzhou-namesrv-{n}.mq-tianzhou-namesrv.queues.svc:9876" for n in (0, 1)
        ]
        roles[broker.broker_name, broker.broker_id] = store.broker_role
        assert store.file_reserved_time == 72
    assert roles == {
        (f"broker-{n}", i): "SLAVE" if i else "SYNC_MASTER" for n in "ab" for i in (0, 1)
    }  # fmt: skip
