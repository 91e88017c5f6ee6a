"""Settings of the session profiles, what wins over them, and what processes are told of Java and Python."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tianzhou
from tianzhou.errors import ConfigError
from tianzhou.spark import java, sessions

SOURCE = str(Path(tianzhou.__file__).resolve().parents[1])


def test_every_setting_has_a_reason():
    for profile in sessions.PROFILES.values():
        assert all(setting.reason for setting in profile)
        keys = [setting.key for setting in profile]
        assert len(keys) == len(set(keys))


def test_one_machine_profiles_name_a_master_and_a_cluster_does_not():
    assert sessions.settings("local")["spark.master"] == "local[*]"
    assert sessions.settings("test")["spark.master"] == "local[2]"
    assert "spark.master" not in sessions.settings("cluster")


def test_only_one_machine_profiles_weaken_the_checkpoint_rename():
    key = "spark.sql.streaming.checkpointFileManagerClass"
    assert key in sessions.settings("local")
    assert key not in sessions.settings("cluster")


def test_given_settings_win_and_none_takes_one_out():
    got = sessions.settings("test", {"spark.driver.memory": "1g", "spark.ui.enabled": True, "a.b": None})
    assert got["spark.driver.memory"] == "1g"
    assert got["spark.ui.enabled"] == "true"
    assert "spark.sql.shuffle.partitions" not in sessions.settings("test", {"spark.sql.shuffle.partitions": None})


def test_an_unknown_profile_is_named_with_those_there_are():
    with pytest.raises(ConfigError, match=r"profile=fast: expected one of local, test, cluster, connect"):
        sessions.settings("fast")


def test_processes_get_java_this_interpreter_and_this_package():
    environ = {"PYTHONPATH": os.pathsep.join(["/elsewhere", SOURCE])}
    runtime = java.Runtime(Path("/opt/java"), 21, True, "test")
    conf = sessions._prepare_processes(environ, find=lambda _: runtime)
    assert environ["JAVA_HOME"] == "/opt/java"
    assert environ["PYSPARK_PYTHON"] == sys.executable
    assert environ["PYTHONPATH"].split(os.pathsep) == [SOURCE, "/elsewhere"]
    assert conf == {"spark.executorEnv.PYTHONPATH": environ["PYTHONPATH"]}


def test_an_interpreter_chosen_by_the_user_stays():
    environ = {"PYSPARK_PYTHON": "/other/python"}
    sessions._prepare_processes(environ, find=lambda _: java.Runtime(Path("/opt/java"), 21, True, "test"))
    assert environ["PYSPARK_PYTHON"] == "/other/python"


def test_importing_the_package_imports_neither_pyspark_nor_pyarrow():
    code = (
        "import sys, tianzhou, tianzhou.spark, tianzhou.spark.offsets;"
        "sys.exit(any(name in sys.modules for name in ('pyspark', 'pyarrow', 'pandas', 'numpy')))"
    )
    environ = {**os.environ, "PYTHONPATH": SOURCE}
    assert subprocess.run([sys.executable, "-c", code], env=environ, check=False).returncode == 0


def test_a_session_on_a_server_sets_only_what_a_session_may():
    connect, cluster = sessions.settings("connect"), sessions.settings("cluster")
    assert connect.items() <= cluster.items()
    unique = ("body", "msgId", "queueOffset", "physicalOffset")
    assert cluster.keys() - connect.keys() == {
        "spark.python.unix.domain.socket.enabled",
        *(f"spark.hadoop.parquet.enable.dictionary#{column}" for column in unique),
    }
