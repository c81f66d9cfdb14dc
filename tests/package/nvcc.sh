#!/bin/sh
# nvcc.sh ROOT: scripts/cuda.sh finds an nvcc that is new enough, and says what it looked for where there is none.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/scripts" "$folder/old" "$folder/toolkit" "$folder/toolkit/bin"
cp "$1/scripts/cuda.sh" "$folder/scripts"
nvcc() { # nvcc FILE RELEASE
  printf '#!/bin/sh\necho "Cuda compilation tools, release %s, V%s.1"\n' "$2" "$2" >"$1"
  chmod +x "$1"
}
find() { PATH="$folder/old:/usr/bin:/bin" CUDA_PATH="$folder/toolkit" SETUP=no "$folder/scripts/cuda.sh"; }

if find 2>"$folder/error"; then echo "found an nvcc where there is none" >&2 && exit 1; fi
grep -q "expected nvcc 12.8 or newer on the path or in /usr/local/cuda, got none" "$folder/error"
nvcc "$folder/old/nvcc" 12.4
if find 2>/dev/null; then echo "took nvcc 12.4" >&2 && exit 1; fi
nvcc "$folder/toolkit/bin/nvcc" 13.0
[ "$(find)" = "$folder/toolkit/bin/nvcc" ]
nvcc "$folder/old/nvcc" 12.10
[ "$(find)" = "$folder/old/nvcc" ]
