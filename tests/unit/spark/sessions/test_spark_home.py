"""Sessions of one machine get a SPARK_HOME without PySpark's archive, if their processes do not need it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tianzhou.spark.sessions import spark_home
from tianzhou.spark.sessions.spark_home import is_found_without, lay, without_archive


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return an installed PySpark."""
    home = tmp_path / "site" / "pyspark"
    for part in (
        "bin/spark-submit",
        "jars/spark.jar",
        "conf/spark-defaults.conf",
        "python/lib/pyspark.zip",
        "sql/__init__.py",
    ):
        (home / part).parent.mkdir(parents=True, exist_ok=True)
        (home / part).write_text(part)
    return home


@pytest.fixture
def environ(home: Path, tmp_path: Path) -> dict[str, str]:
    return {"PYTHONPATH": str(home.parent), "XDG_CACHE_HOME": str(tmp_path / "cache")}


def test_all_of_it_but_the_archive(home, tmp_path):
    laid = lay(home, tmp_path / "cache" / "spark")
    assert sorted(part.name for part in laid.iterdir()) == ["bin", "conf", "jars"]
    assert (laid / "conf" / "spark-defaults.conf").read_text() == "conf/spark-defaults.conf"
    assert lay(home, tmp_path / "cache" / "spark") == laid
    (home / "data").mkdir()
    assert lay(home, tmp_path / "cache" / "spark") != laid  # a PySpark with other parts


def test_nothing_is_run_that_others_can_have_laid(home, tmp_path):
    laid = lay(home, tmp_path / "cache" / "spark")
    (laid / "jars").unlink()
    (laid / "jars").symlink_to("/elsewhere")
    with pytest.raises(PermissionError, match="is not what was written there"):
        lay(home, tmp_path / "cache" / "spark")
    (tmp_path / "cache" / "spark").chmod(0o777)
    with pytest.raises(PermissionError, match="can be written by others"):
        lay(home, tmp_path / "cache" / "spark")


@pytest.mark.parametrize(
    ("more", "conf"),
    [
        ({"SPARK_HOME": "of-the-user/spark"}, {}),
        ({"PYSPARK_PYTHON": "/other/python"}, {}),
        ({"PYTHONPATH": "/elsewhere"}, {}),
        ({}, {"spark.pyspark.python": "/other/python"}),
    ],
)
def test_who_may_need_the_archive_keeps_it(home, environ, more, conf, monkeypatch):
    assert is_found_without(home, {**environ, "PYSPARK_PYTHON": sys.executable}, {})
    assert not is_found_without(home, {**environ, **more}, conf)
    monkeypatch.setattr(spark_home, "installed_home", lambda: home)
    asked = {**environ, **more}
    with without_archive(asked, conf):
        assert asked == {**environ, **more}


def test_only_the_jvm_sees_it(home, environ, monkeypatch):
    monkeypatch.setattr(spark_home, "installed_home", lambda: home)
    before = dict(environ)
    with without_archive(environ, {}):
        assert Path(environ["SPARK_HOME"]).is_relative_to(environ["XDG_CACHE_HOME"])
        assert not os.path.lexists(Path(environ["SPARK_HOME"], "python"))
    assert environ == before


def test_where_no_folder_can_be_made_spark_starts_as_before(home, environ, tmp_path, monkeypatch):
    monkeypatch.setattr(spark_home, "installed_home", lambda: home)
    (tmp_path / "cache").write_text("a file")
    with without_archive(environ, {}):
        assert "SPARK_HOME" not in environ


def test_the_installed_pyspark_is_found():
    pytest.importorskip("pyspark")
    assert (spark_home.installed_home() / "jars").is_dir()
