#!/usr/bin/env bash
# Installs the Debian packages that Keel needs. Silent and quick if they are all installed.
#
#   scripts/setup.sh          what make build, test, lab, bench, sanitize and tsan need
#   scripts/setup.sh install  what make install needs, and no more
#   scripts/setup.sh dev      also what make format, tidy and fuzz need
#   scripts/setup.sh cross    also what make cross needs
#   scripts/setup.sh playground  also a compiler for WebAssembly, for the kernels in the lab's pages
#   scripts/setup.sh browser  also a browser, in which make test opens the lab's report
set -euo pipefail

build=(g++ cmake ninja-build pkg-config git)
library=(libhwy-dev libtbb-dev)
program=(libcli11-dev nlohmann-json3-dev libfmt-dev)
training=(libopenblas-dev node-d3)
machines=(libopenmpi-dev openmpi-bin)
tests=(libgtest-dev libgmock-dev python3 python3-venv python3-dev abigail-tools)
dev=(clang clang-format clang-tidy libclang-rt-dev valgrind)
cross=(g++-aarch64-linux-gnu)
playground=(clang-19 lld-19 libc++-19-dev-wasm32 libclang-rt-19-dev-wasm32)
browser=(chromium)

fail() {
  printf 'setup: %s\n' "$1" >&2
  exit 1
}

packages=("${build[@]}" "${library[@]}" "${program[@]}")
if [[ ${1:-} == install ]]; then
  shift
else
  packages+=("${training[@]}" "${machines[@]}" "${tests[@]}")
fi
for group in "$@"; do
  case $group in
    dev) packages+=("${dev[@]}") ;;
    cross) packages+=("${cross[@]}") ;;
    playground) packages+=("${playground[@]}") ;;
    browser) packages+=("${browser[@]}") ;;
    *) fail "unknown group '$group'; usage: scripts/setup.sh [install] [dev] [cross] [playground] [browser]" ;;
  esac
done

command -v dpkg-query >/dev/null && command -v apt-get >/dev/null ||
  fail "no apt-get here; install what Debian calls ${packages[*]}, then run make with SETUP=no"

# dpkg-query fails if it does not know one of the names; what it prints about the others still counts.
installed=$(dpkg-query --show --showformat='${db:Status-Status} ${Package}\n' "${packages[@]}" 2>/dev/null || true)
missing=()
for package in "${packages[@]}"; do
  [[ $'\n'$installed$'\n' == *$'\n'"installed $package"$'\n'* ]] || missing+=("$package")
done
((${#missing[@]})) || exit 0

as_root=(env DEBIAN_FRONTEND=noninteractive)
if ((EUID != 0)); then
  by_hand="as root: apt-get install --no-install-recommends ${missing[*]}"
  command -v sudo >/dev/null || fail "packages are missing and there is no sudo; run $by_hand"
  [[ -t 0 ]] || sudo -n true 2>/dev/null || fail "packages are missing and sudo wants a password; run $by_hand"
  as_root=(sudo "${as_root[@]}")
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() {
  "${as_root[@]}" apt-get --yes --quiet -o DPkg::Lock::Timeout=300 "$@" >"$log" 2>&1
}
# The first error that apt-get reported.
complaint() {
  sed --quiet 's/^E: *//p' "$log" | head --lines=1
}

echo "setup: installing ${missing[*]}"
# A list that cannot be fetched matters only if the packages are then unavailable: an unrelated source that is down must
# not stop the build.
unreachable=""
apt -o APT::Update::Error-Mode=any update || unreachable=$(complaint)
if ! apt --no-install-recommends install "${missing[@]}"; then
  [[ -z $unreachable ]] || fail "the package list cannot be reached: $unreachable"
  fail "apt-get could not install them: $(complaint)"
fi
