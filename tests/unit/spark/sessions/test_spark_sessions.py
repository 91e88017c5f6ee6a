"""Settings of the session profiles, their precedence, and the environment of Java and Python processes."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import tianzhou
from spark_probe import is_interactive, prepare_processes
from tianzhou.errors import ConfigError
from tianzhou.spark.sessions import daemon, java_runtime, sessions

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
    runtime = java_runtime.Runtime(Path("java-home"), 21, True, "test")
    conf = prepare_processes(environ, find=lambda _: runtime)
    assert environ["JAVA_HOME"] == "java-home"
    assert environ["PYSPARK_PYTHON"] == sys.executable
    assert environ["PYTHONPATH"].split(os.pathsep) == [SOURCE, "/elsewhere"]
    assert conf == {"spark.executorEnv.PYTHONPATH": environ["PYTHONPATH"]}


def test_an_interpreter_chosen_by_the_user_stays():
    environ = {"PYSPARK_PYTHON": "/other/python"}
    prepare_processes(environ, find=lambda _: java_runtime.Runtime(Path("java-home"), 21, True, "test"))
    assert environ["PYSPARK_PYTHON"] == "/other/python"


def test_importing_the_package_imports_neither_pyspark_nor_pyarrow():
    code = (
        "import sys, tianzhou, tianzhou.spark, tianzhou.spark.source.offsets;"
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


def test_workers_import_the_installed_pyspark_and_not_its_archive():
    lib = os.path.join("/site", "pyspark", "python", "lib")
    archive, py4j = os.path.join(lib, "pyspark.zip"), os.path.join(lib, "py4j.zip")
    assert daemon.without_archive([archive, py4j, "/src", archive, "/site"]) == [py4j, "/src", "/site"]
    assert daemon.without_archive([archive, py4j, "/src"]) == [archive, py4j, "/src"]


@pytest.mark.parametrize(
    ("error", "told"),
    [(BrokenPipeError(), False), (ConnectionResetError(), False), (OSError("disk"), True), (ValueError(), True)],
)
def test_only_that_nobody_reads_on_is_not_told(error, told):
    said = []
    try:
        raise error
    except Exception:  # noqa: BLE001 - any
        daemon.unless_gone(said.append)("something")
    assert bool(said) == told


def test_behind_a_workers_later_tasks_its_modules_are_not_looked_through_for_garbage(monkeypatch):
    """A full collection took 27 ms of a micro-batch."""
    calls = []
    watched = SimpleNamespace(collect=lambda: calls.append("collect"), freeze=lambda: calls.append("freeze"))
    monkeypatch.setattr(daemon, "gc", watched)
    collect = daemon.collecting_new()
    for _ in range(3):
        collect()
    assert calls == ["collect", "freeze", "collect", "collect"]


def test_garbage_of_later_tasks_is_still_found():
    """In a separate process, because frozen objects stay frozen."""
    program = (
        "import weakref; from tianzhou.spark.sessions.daemon import collecting_new\n"
        "class Ring: pass\n"
        "def ring():\n"
        "    one = Ring(); one.self = one\n"
        "    return weakref.ref(one)\n"
        "collect = collecting_new(); collect()\n"
        "left = ring(); collect()\n"
        "print(left() is None)"
    )
    environ = {**os.environ, "PYTHONPATH": SOURCE}
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


def test_processes_that_find_and_plan_sources_are_quiet_too(tmp_path):
    """They are forked by PySpark's daemon, whose module is `__main__` there."""
    program = (
        "import sys, types\n"
        "main = sys.modules['__main__'] = types.ModuleType('__main__')\n"
        "main.__spec__ = types.SimpleNamespace(name=sys.argv[1])\n"
        "import tianzhou.spark.pickling\n"
        "print(hasattr(main, 'traceback'))\n"
    )
    for name, quiet in (("pyspark.daemon", "True"), ("my.program", "False")):
        environ = {**os.environ, "PYTHONPATH": SOURCE}
        done = subprocess.run(
            [sys.executable, "-c", program, name], env=environ, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == quiet


def test_what_is_imported_before_the_fork_begins_no_thread():
    code = (
        "import os, sys; from importlib import import_module; from tianzhou.spark.sessions.daemon import FOR_WORKERS\n"
        "for name in FOR_WORKERS: import_module(name)\n"
        "print(len(os.listdir('/proc/self/task')), 'pyarrow' in sys.modules)"
    )
    environ = {**os.environ, "PYTHONPATH": SOURCE}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "False"]


def test_the_first_query_is_prepared_where_somebody_types(monkeypatch):
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    monkeypatch.delattr(sys, "ps1", raising=False)
    assert not is_interactive()
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    assert is_interactive()
