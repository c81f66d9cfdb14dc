#!/usr/bin/env bash
# Compiles libkeel for 64-bit ARM, and the SIMD shards for each of NEON, SVE and SVE2. The headers of Highway and oneTBB are
# this machine's; it has no libraries for ARM, so nothing is linked.
set -euo pipefail
cd "$(dirname "$0")/.."

out=build/cross
mkdir -p "$out"
# compile ARCH SOURCE...
compile() {
  local arch=$1 source
  shift
  for source in "$@"; do
    aarch64-linux-gnu-g++ -std=c++20 -O1 -Wall -Wextra -march="$arch" -Iinclude -Isrc -idirafter /usr/include \
      -DKEEL_WITH_TBB=1 -DKEEL_VERSION='""' -c "$source" -o "$out/$(basename "$source").o"
  done
}

folders=$(sed -n 's/^set(library_folders \(.*\))$/\1/p' src/CMakeLists.txt)
[[ -n $folders ]] || { echo "cross: src/CMakeLists.txt names no library_folders" >&2; exit 1; }
for folder in $folders; do
  [[ $folder == cpu ]] || compile armv8-a "src/$folder"/*.cc
done
echo "cross: libkeel compiles for AArch64"
for arch in armv8-a armv8.2-a+sve armv9-a; do
  compile "$arch" src/cpu/*.cc
  echo "cross: the shards compile for $arch"
done
