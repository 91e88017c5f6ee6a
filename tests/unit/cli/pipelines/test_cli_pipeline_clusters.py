"""Options of a pipeline's cluster: the source of account and secret; no secret is printed."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from parsed_commands import parse

from tianzhou.cli.app import whole_app
from tianzhou.cli.pipelines.clusters import PipelineCluster, account
from tianzhou.errors import ConfigError

SET = {"TIANZHOU_ACCESS_KEY": "set", "TIANZHOU_SECRET_KEY": "set-secret"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "job.secret"
    path.write_text("of-the-file\n")
    return path


def test_the_command_line_goes_before_the_environment(file: Path) -> None:
    assert account(None, None, None, SET) == (None, None)  # the client reads the environment itself
    assert account("job", None, file, SET) == ("job", "of-the-file")
    assert account("job", "said", None, SET) == ("job", "said")
    assert account("job", None, None, SET) == ("job", "set-secret")
    assert account(None, None, file, SET) == ("set", "of-the-file")


@pytest.mark.parametrize(
    ("access_key", "secret_key", "says"),
    [
        ("job", None, r"--access-key job is given without --secret-key-file; .* or set TIANZHOU_SECRET_KEY"),
        (None, "said", r"a secret key is given without --access-key; .* or set TIANZHOU_ACCESS_KEY"),
    ],
)
def test_half_an_account_is_refused_without_showing_the_secret(access_key, secret_key, says) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        account(access_key, secret_key, None, {})
    assert "said" not in str(caught.value)


def test_a_file_that_holds_no_secret_is_named(tmp_path: Path, file: Path) -> None:
    for content in (b"", b"two\nlines\n", b"\xff\xfe", b"x" * 5000):
        (tmp_path / "bad").write_bytes(content)
        with pytest.raises(ConfigError, match=r"--secret-key-file .*bad: expected one line of text, the secret"):
            account("job", None, tmp_path / "bad", {})
    with pytest.raises(ConfigError, match=r"--secret-key-file .*nothing: No such file"):
        account("job", None, tmp_path / "nothing", {})
    with pytest.raises(
        ConfigError, match=r"--secret-key and --secret-key-file .* are both given; leave out the former"
    ):
        account("job", "said", file, {})


def test_a_cluster_shows_no_secret() -> None:
    assert "said" not in repr(PipelineCluster(access_key="job", secret_key="said"))


def test_a_namespace_of_a_store_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"--namespace tenant: .* --store data asks none; .* tenant%orders"):
        PipelineCluster(namespace="tenant").refuse_store("data")
    PipelineCluster(namespace="tenant").refuse_store(None)
    PipelineCluster().refuse_store("data")


def test_every_command_that_talks_to_a_cluster_has_the_options() -> None:
    family = typer.main.get_command(whole_app()).commands["pipeline"].commands
    without = {name for name, command in family.items() if "namesrv" not in {one.name for one in command.params}}
    assert without == {"source", "verify"}, "one prints a file, one reads a database and a table"
    for name in family.keys() - without:
        options = {option for one in family[name].params for option in one.opts}
        assert options >= {"--namesrv", "--tls", "--access-key", "--secret-key", "--secret-key-file", "--namespace"}
    parse(["pipeline", "dlq", "billing", "--access-key", "job", "--secret-key-file", "f", "--namespace", "tenant"])
