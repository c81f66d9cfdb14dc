#!/usr/bin/env bash
# Compiles the SIMD shards for 64-bit ARM: NEON, SVE and SVE2. Highway is headers alone there, so nothing is linked.
set -euo pipefail
cd "$(dirname "$0")/.."

out=build/cross
mkdir -p "$out"
for arch in armv8-a armv8.2-a+sve armv9-a; do
  for shard in src/cpu/*.cc; do
    aarch64-linux-gnu-g++ -std=c++20 -O1 -Wall -Wextra -march="$arch" -Iinclude -Isrc -idirafter /usr/include \
      -c "$shard" -o "$out/$(basename "$shard").o"
  done
  echo "cross: the shards compile for $arch"
done
