#!/usr/bin/env bash
# fuzz.sh BUILD SECONDS: runs every fuzzer of a build tree for SECONDS, in parallel. A fuzzer starts from the folders named
# in its .seeds file and keeps what it learns in BUILD/corpus; an input that breaks something is left in BUILD/findings.
set -euo pipefail
build=$1 seconds=$2

shopt -s nullglob
fuzzers=("$build"/bin/*_fuzz)
((${#fuzzers[@]})) || { echo "fuzz: no fuzzers in $build/bin" >&2; exit 1; }
mkdir -p "$build/findings" "$build/log"

pids=()
trap 'kill "${pids[@]}" 2>/dev/null' INT TERM
for fuzzer in "${fuzzers[@]}"; do
  name=$(basename "$fuzzer")
  seeds=()
  [[ ! -e $fuzzer.seeds ]] || mapfile -t seeds <"$fuzzer.seeds"
  mkdir -p "$build/corpus/$name"
  # Instrumented, the oracle takes up to a minute and a half for the largest random problem.
  "$fuzzer" -max_total_time="$seconds" -timeout=240 -print_final_stats=1 -artifact_prefix="$build/findings/$name-" \
    "$build/corpus/$name" "${seeds[@]}" >"$build/log/$name.log" 2>&1 &
  pids+=($!)
  echo "$name: fuzzing for $seconds s, log in $build/log/$name.log"
done

failed=0
for i in "${!fuzzers[@]}"; do
  name=$(basename "${fuzzers[i]}")
  log=$build/log/$name.log
  if wait "${pids[i]}"; then
    echo "$name: nothing found in $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") runs"
  else
    failed=1
    echo "$name: FAILED, input in $(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1); the end of the log:" >&2
    grep -v '^stat::' "$log" | tail -n 40 >&2
  fi
done
exit "$failed"
