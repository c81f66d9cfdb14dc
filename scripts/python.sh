#!/usr/bin/env bash
# The Python package, from what make build has built. Everything lands in build/.
#
#   scripts/python.sh environment  creates and fills the virtual environment build/venv, if a package index can be reached
#   scripts/python.sh wheel        builds build/wheel/keel-*.whl
#   scripts/python.sh test         also installs it into the virtual environment and runs python/tests there
#   scripts/python.sh deep         the same, but the tests that are marked as deep
#   scripts/python.sh docs         builds the documentation site, build/docs/site, with no link broken
#
# What is up to date is left alone. Without a package index, missing packages are not available: `wheel` then
# fails, and `test` says what is left out and succeeds.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=build/venv
wheels=build/wheel
log=build/python.log
pip=("$venv/bin/python" -m pip --disable-pip-version-check)

fail() {
  printf 'python: %s\n' "$1" >&2
  exit 1
}

# The packages that building and testing need, as pyproject.toml names them.
requirements() {
  python3 - <<'PYTHON'
import tomllib
with open("pyproject.toml", "rb") as file:
    project = tomllib.load(file)
print("\n".join(project["build-system"]["requires"] + project["project"]["dependencies"]
                + project["project"]["optional-dependencies"]["test"]))
PYTHON
}

# Creates and fills the virtual environment; fails, with the reason in $why, if there is no index to fill it from.
environment() {
  local wanted
  wanted=$(requirements)
  [[ -f $venv/requirements.txt && $(<"$venv/requirements.txt") == "$wanted" ]] && return
  if [[ ${SETUP:-yes} == no ]]; then
    why="SETUP=no installs nothing"
    return 1
  fi
  [[ -x $venv/bin/python ]] || python3 -m venv "$venv"
  local probe
  probe=$(mktemp -d)
  if ! "${pip[@]}" download --quiet --no-deps --retries 0 --timeout 15 --dest "$probe" nanobind >"$log" 2>&1; then
    rm -rf "$probe"
    why="no package index can be reached"
    return 1
  fi
  rm -rf "$probe"
  echo "python: installing ${wanted//$'\n'/ } into $venv"
  printf '%s\n' "$wanted" >"$venv/wanted.txt"
  "${pip[@]}" install --quiet --requirement "$venv/wanted.txt" >"$log" 2>&1 || fail "$(tail -n 5 "$log")"
  mv "$venv/wanted.txt" "$venv/requirements.txt"
}

# True if nothing that goes into the wheel is newer than it.
wheel_is_current() {
  [[ -f $wheels/built ]] && [[ -z $(find python/CMakeLists.txt python/src python/keel include pyproject.toml \
    CMakeLists.txt cmake README.md LICENSE python/NOTICE build/lib/libkeel.so build/bin/keel build/bin/keel-lab -newer "$wheels/built" \
    -print -quit) ]]
}

wheel() {
  wheel_is_current && return
  echo "python: building the wheel"
  rm -rf "$wheels"
  "${pip[@]}" wheel --quiet --no-build-isolation --no-deps --no-index --wheel-dir "$wheels" \
    --config-settings=build-dir=build/python --config-settings=cmake.define.KEEL_PREBUILT="$PWD/build" . >"$log" 2>&1 ||
    fail "$(cat "$log")"
  # The name of a wheel for many systems (manylinux), if it may have it; torch's own libraries are there when its part is imported.
  if PATH="$PWD/$venv/bin:$PATH" "$venv/bin/python" -m auditwheel repair --exclude 'libtorch*' --exclude 'libc10*' \
    --wheel-dir "$wheels/named" "$wheels"/keel-*.whl >"$log" 2>&1; then
    rm "$wheels"/keel-*.whl
    mv "$wheels"/named/keel-*.whl "$wheels"
  fi
  rm -rf "$wheels/named"
  "${pip[@]}" install --quiet --no-deps --no-index --force-reinstall "$wheels"/keel-*.whl >"$log" 2>&1 ||
    fail "$(cat "$log")"
  touch "$wheels/built"
}

why=""
case ${1:-} in
  environment) environment || true ;;
  wheel)
    environment || fail "$why, and the wheel needs scikit-build-core and nanobind"
    wheel
    ls "$wheels"/keel-*.whl
    ;;
  test | deep)
    if ! environment; then
      echo "python: the Python package and its tests are left out, since $why"
      exit 0
    fi
    wheel
    [[ $1 == test ]] || exec "$venv/bin/python" -B -m pytest -m deep
    # The tests in two processes, half in each.
    half=(python/tests/test_{torch_parity,transformers,architectures,onnx,types,site}.py)
    "$venv/bin/python" -B -m pytest "${half[@]}" >"$log" 2>&1 &
    others=0
    "$venv/bin/python" -B -m pytest "${half[@]/#/--ignore=}" || others=$?
    wait $! || { cat "$log" && exit 1; }
    tail -n 1 "$log"
    exit $others
    ;;
  docs)
    environment || fail "$why, and the site needs mkdocs-material"
    python3 scripts/docs.py . build/docs/pages
    NO_MKDOCS_2_WARNING=1 "$venv/bin/python" -m mkdocs build --strict >"$log" 2>&1 || fail "$(grep -E "WARNING|ERROR" "$log")"
    echo "build/docs/site/index.html"
    ;;
  *) fail "usage: scripts/python.sh environment|wheel|test|deep|docs" ;;
esac
