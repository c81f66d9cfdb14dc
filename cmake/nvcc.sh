#!/bin/sh
# nvcc.sh COMMAND...: compiles a file of CUDA kernels and refuses what would be slow in silence: more than 64 bytes of spilled
# registers in a kernel, matrix products that wait for each other, registers that are not handed over.
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
"$@" >"$log" 2>&1
status=$?
# What -Xptxas -v says of each kernel is for the lines below alone.
grep -vE "^ptxas info|bytes stack frame|^ *[0-9]+ bytes (gmem|cmem)|^$" "$log" >&2
[ "$status" -eq 0 ] || exit "$status"
awk '
  /Compiling entry function/ { split($0, part, "\047"); kernel = part[2] }
  match($0, /[0-9]+ bytes spill stores/) {
    if (substr($0, RSTART) + 0 > 64) { print "nvcc.sh: " substr($0, RSTART) " in " kernel; bad = 1 }
  }
  /C75[01][0-9]|wgmma.*serializ|setmaxnreg.*ignored/ { print "nvcc.sh: " $0; bad = 1 }
  END { exit bad }
' "$log" >&2
