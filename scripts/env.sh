# Sourced by ./run, ./test and scripts/check: makes .venv from a hashed lock, once per lock.
# need_env run|dev leaves $PY (the environment's interpreter) set. $VENV names another folder than .venv, for another
# interpreter (use_python).
VENV=.venv

say() { printf '%s\n' "$*" >&2; }

is_debian_root() { [ "$(id -u)" = 0 ] && [ -f /etc/debian_version ]; }

apt_install() {
  say "installing from Debian: $*"
  if [ -z "${TIANZHOU_APT_UPDATED:-}" ]; then
    apt-get update -qq >/dev/null && TIANZHOU_APT_UPDATED=1
  fi
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# Points of an interpreter: one that cannot make an environment, or cannot compile the hot functions, comes after one
# that can; and one that was built without optimisation, as pyenv does unless it is told to, after one that was. What a
# system brings is optimised without saying so.
python_points=$(
  cat <<'EOF'
import os, sys, sysconfig
if not (3, 11) <= sys.version_info[:2] <= (3, 14):
    sys.exit(1)
try:
    import ensurepip
    points = 4
except ImportError:
    points = 0
points += 2 * os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))
optimised = "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "") or sys.base_prefix == "/usr"
print(points + optimised)
EOF
)

# The best of the interpreters in the path, the older version first; TIANZHOU_PYTHON names another.
find_python() {
  found= found_points=-1
  while IFS= read -r candidate; do
    points=$("$candidate" -c "$python_points" 2>/dev/null) || continue
    if [ "$points" -gt "$found_points" ]; then found=$candidate found_points=$points; fi
  done < <(
    if [ -n "${TIANZHOU_PYTHON:-}" ]; then
      printf '%s\n' "$TIANZHOU_PYTHON"
    else
      for name in python3.11 python3.12 python3.13 python3.14 python3; do type -ap "$name" || true; done
    fi
  )
  [ -n "$found" ] || return 1
  printf '%s\n' "$found"
}

# The first interpreter of a version (3.13) that works: of the path, else of those that pyenv has installed. The path may
# have a program of pyenv whose version is not switched on; it ends with 127.
python_of() {
  while IFS= read -r candidate; do
    if "$candidate" -c "$python_points" >/dev/null 2>&1; then
      printf '%s\n' "$candidate"
      return
    fi
  done < <(
    type -ap "python$1" || true
    compgen -G "${PYENV_ROOT:-${HOME:-}/.pyenv}/versions/$1.*/bin/python$1" || true
  )
  return 1
}

# Have need_env make and use an environment of its own for an interpreter: a version (3.13) or a path.
use_python() {
  TIANZHOU_PYTHON=$(python_of "$1" || type -p "$1") || {
    say "there is no python$1 in the path or in pyenv's folder, and no program $1"
    exit 1
  }
  "$TIANZHOU_PYTHON" -c "$python_points" >/dev/null || { say "$TIANZHOU_PYTHON is no Python 3.11 to 3.14"; exit 1; }
  VENV=.venv-$("$TIANZHOU_PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
}

# Interpreters in the path that are newer than the one of an environment, one of each version, as
# "3.13 /usr/bin/python3.13". With a second argument those that pyenv has installed count as well.
newer_pythons() {
  own=$("$1" -c 'import sys; print(sys.version_info[1])')
  for minor in 12 13 14; do
    [ "$minor" -gt "$own" ] || continue
    if [ -n "${2:-}" ]; then
      found=$(python_of "3.$minor") || continue
    else
      found=$(type -p "python3.$minor") && "$found" -c "$python_points" >/dev/null 2>&1 || continue
    fi
    printf '3.%s %s\n' "$minor" "$found"
  done
}

tell_of_slow_python() {
  if [ $(($("$1" -c "$python_points") % 2)) = 0 ]; then
    say "$1 was built without optimisation (--enable-optimizations): what runs in Python takes 1.5 times as long."
    say "The system's python3.11 is better (Debian: apt-get install python3 python3-venv python3-dev), or with pyenv:"
    say "  PYTHON_CONFIGURE_OPTS=--enable-optimizations pyenv install 3.11; then remove .venv"
  fi
}

# The package itself, in place, with its hot functions (and Spark's rows) compiled where there is a C compiler. Once per
# state of their sources; without a compiler they stay Python, or with TIANZHOU_REQUIRE_COMPILED=1 nothing goes on.
need_package() {
  hot=$({ for part in src/tianzhou/_hot src/tianzhou/spark/rows/_rows; do cat "$part"/*.p[xy]* "$part"/*.h; done
     cat src/tianzhou/records/layout.h
    cat pyproject.toml scripts/hatch_build.py
    can_compile && echo compiler; } | sha256sum | cut -d' ' -f1)
  [ "$(cat $VENV/.tianzhou-hot 2>/dev/null)" != "$hot" ] || return 0
  # Debian's packages are for its own interpreter.
  if [ "$kind" = dev ] && [ "$VENV" = .venv ] && is_debian_root && ! can_compile; then
    apt_install gcc libc6-dev python3-dev || true
  fi
  env -u TIANZHOU_PURE VIRTUAL_ENV="$here/$VENV" "$PY" -m uv pip install -q --no-deps --reinstall-package tianzhou \
    --build-constraints locks/build.txt -e . || {
    # Without a package index nothing can be built anew; what was installed before goes on in Python.
    case ${TIANZHOU_REQUIRE_COMPILED:-0} in '' | 0) ;; *) exit 1 ;; esac
    "$PY" -c 'import tianzhou' 2>/dev/null || exit 1
    say "the hot functions could not be built anew and stay Python until they can"
    return 0
  }
  # What servers and commands import is compiled now, as pip does with what it installs: an environment that forbids Python
  # to write byte code (PYTHONDONTWRITEBYTECODE, as in many containers) would have each command take twice its time.
  env -u PYTHONDONTWRITEBYTECODE -u TIANZHOU_PURE "$PY" -c '
import tianzhou.admin, tianzhou.cli.app, tianzhou.embedded
tianzhou.cli.app.whole_app()' || true  # what is wrong, the command itself says
  mode=$(env -u TIANZHOU_PURE "$PY" -c 'from tianzhou import _hot; print(_hot.MODE)')
  say "hot functions: $mode (compiled ones are faster and need gcc and python3-dev; see docs/adr/0004-hot-path.md)"
  # What a compiler could not do this time is tried again.
  [ "$mode" = pure ] && can_compile || printf '%s' "$hot" >$VENV/.tianzhou-hot
}

can_compile() {
  command -v cc >/dev/null 2>&1 &&
    [ -e "$("$PY" -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" ]
}

need_env() {
  kind=$1
  here=$(pwd)
  stamp=$VENV/.tianzhou-$kind
  wanted=$(cat "locks/$kind.txt" locks/build.txt pyproject.toml | sha256sum | cut -d' ' -f1)
  PY=$here/$VENV/bin/python
  # The environment for development holds everything the main job needs.
  if [ -x "$PY" ] && { [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ] ||
    { [ "$kind" = run ] && [ -f $VENV/.tianzhou-dev ] && [ "$(cat $VENV/.tianzhou-run 2>/dev/null)" = "$wanted" ]; }; }; then
    need_package
    return
  fi
  base=$(find_python) || {
    if is_debian_root; then apt_install python3 python3-venv && base=$(find_python); fi
  } || { say "Python 3.11 to 3.14 is needed and was not found; on Debian: apt-get install python3 python3-venv"; exit 1; }
  if ! "$base" -c 'import ensurepip' 2>/dev/null; then
    if [ "$VENV" = .venv ] && is_debian_root; then apt_install python3-venv; else
      say "$base has no venv module; on Debian: apt-get install python3-venv"; exit 1
    fi
  fi
  tell_of_slow_python "$base"
  say "making the environment $VENV ($kind); the first time this takes a few minutes"
  [ -x "$PY" ] || "$base" -m venv "$VENV"
  if ! "$PY" -m uv --version >/dev/null 2>&1; then
    "$PY" -m pip install -q --disable-pip-version-check --require-hashes -r locks/uv.txt
  fi
  VIRTUAL_ENV=$here/$VENV "$PY" -m uv pip install -q --require-hashes --build-constraints locks/build.txt -r "locks/$kind.txt" || {
    version=$("$PY" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    say "the packages of locks/$kind.txt could not be installed for Python $version; where the lines above name one that"
    say "has no wheel for it, install python3.11 to python3.13 (Debian: apt-get install python3 python3-venv), remove"
    say "$VENV, and start again"
    exit 1
  }
  # uv builds the source package of PySpark anew for each environment and keeps every build, 1.4 GB each.
  "$PY" -m uv cache prune -q >/dev/null 2>&1 || true
  rm -f $VENV/.tianzhou-hot
  need_package
  printf '%s' "$wanted" >"$stamp"
  if [ "$kind" = dev ]; then
    cat locks/run.txt locks/build.txt pyproject.toml | sha256sum | cut -d' ' -f1 | tr -d '\n' >$VENV/.tianzhou-run
  fi
}
