#!/usr/bin/env bash
# Finds what must not be in a tracked file: a path on someone's machine, a mark of unfinished work, a merge left half done.
set -euo pipefail
cd "$(dirname "$0")/.."

found=0
# refuse WHAT PATTERN [GREP OPTION...]
refuse() {
  local what=$1 pattern=$2
  shift 2
  # The tree may belong to another user, as in a container: reading it is harmless.
  local status=0
  git -c safe.directory='*' grep -nIE "$@" -e "$pattern" -- . || status=$?
  case $status in
    0) printf 'lint: the lines above have %s\n' "$what" >&2 && found=1 ;;
    1) ;;  # nothing found
    *) exit 2 ;;
  esac
}

refuse "an absolute path of one machine" '(^|[^[:alnum:]_.])/(work|root|home|Users)/'
refuse "a mark of unfinished work" 'TO''DO|FIX''ME|XX''X|HA''CK' --word-regexp
refuse "a merge conflict" '^(<<<<<<<|>>>>>>>) '
exit "$found"
