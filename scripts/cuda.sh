#!/usr/bin/env bash
# Finds nvcc 12.8 or newer and prints its path: on the path, in CUDA_PATH or /usr/local/cuda, or as Python packages in
# build/cuda. If there is none, these are installed (270 MB); with SETUP=no nothing is.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(nvidia-cuda-nvcc nvidia-cuda-crt nvidia-cuda-runtime nvidia-cuda-cccl nvidia-nvvm)
release=13.0
folder=build/cuda
own=$PWD/$folder/nvidia/cu${release%%.*}

fail() {
  printf 'cuda: %s\n' "$1" >&2
  exit 1
}

is_new_enough() {
  local version
  version=$("$1" --version 2>/dev/null | sed -nE 's/.*release ([0-9.]+).*/\1/p')
  [[ -n $version && $(printf '12.8\n%s\n' "$version" | sort --version-sort | head --lines=1) == 12.8 ]]
}

find_nvcc() {
  local nvcc
  for nvcc in "$(command -v nvcc || true)" "${CUDA_PATH:-/usr/local/cuda}/bin/nvcc" "$own/bin/nvcc"; do
    if [[ -x $nvcc ]] && is_new_enough "$nvcc"; then
      printf '%s\n' "$nvcc"
      return
    fi
  done
  return 1
}

find_nvcc && exit
[[ ${SETUP:-yes} != no ]] || fail "expected nvcc 12.8 or newer on the path or in /usr/local/cuda, got none; SETUP=no installs nothing"
echo "cuda: installing ${packages[*]} $release into $folder" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
[[ -x $folder/venv/bin/python ]] || python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip --disable-pip-version-check install --quiet --no-deps --upgrade --target "$folder" \
  "${packages[@]/%/==$release.*}" >"$log" 2>&1 || fail "the Python packages of nvcc cannot be installed: $(tail --lines=1 "$log")"
# Where nvcc and CMake look for libraries.
ln --symbolic --force --no-dereference lib "$own/lib64"
ln --symbolic --force "libcudart.so.${release%%.*}" "$own/lib/libcudart.so"
find_nvcc || fail "expected nvcc in $own/bin, got none"
