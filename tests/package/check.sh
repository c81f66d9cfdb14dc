#!/usr/bin/env bash
# check.sh BUILD LIBDIR VERSION PROGRAM NN: installs the build tree into a temporary folder, then builds and runs consumers
# against it: C++ through find_package(keel), C through pkg-config. PROGRAM is ON when the tree has the program, NN when it
# has the training layer. CMAKE, CC and CXX name the tools.
set -euo pipefail
build=$1 libdir=$2 version=$3 program=$4 nn=$5
here=$(cd "$(dirname "$0")" && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

step() { printf -- '-- %s\n' "$1"; }
fail() {
  printf 'FAILED: %s\n' "$1" >&2
  exit 1
}

step "install, then move the tree: nothing in it may hold the path it was installed to"
"$CMAKE" --install "$build" --prefix "$tmp/installed" >"$tmp/install.log" || { cat "$tmp/install.log"; fail "install"; }
prefix=$tmp/moved
mv "$tmp/installed" "$prefix"
lib=$prefix/$libdir
export LD_LIBRARY_PATH=$lib PKG_CONFIG_PATH=$lib/pkgconfig

step "headers of what was built, and no others"
[[ -e $prefix/include/keel/attention.h ]] || fail "include/keel: expected attention.h"
[[ $nn == ON || ! -e $prefix/include/keel/nn ]] || fail "include/keel/nn: expected none without the training layer"

link_static=()
if [[ -e $lib/libkeel.a ]]; then
  link_static=(--static)
else
  step "the shared libraries offer Keel's names alone"
  for library in "$lib"/libkeel*.so; do
    others=$(nm --dynamic --defined-only --demangle --without-symbol-versions "$library" | cut -d ' ' -f 3- |
      grep --invert-match --line-regexp --fixed-strings "KEEL_${version%.*}" |
      grep --invert-match --extended-regexp '^(keel_[a-z_]+|((typeinfo|vtable)( name)? for )?keel::.*)$' || true)
    [[ -z $others ]] || fail "$(basename "$library") also exports"$'\n'"$others"
  done

  step "a program of an interface that broke is not started"
  # It was linked against a library of that name, which is all that the loader goes by.
  mkdir "$tmp/old"
  echo 'const char* keel_version(void) { return "0.1.0"; }' >"$tmp/old/library.c"
  echo 'const char* keel_version(void); int main(void) { return keel_version() == 0; }' >"$tmp/old/program.c"
  "$CC" -shared -fPIC -Wl,-soname,libkeel.so.0 "$tmp/old/library.c" -o "$tmp/old/libkeel.so.0"
  "$CC" "$tmp/old/program.c" -o "$tmp/old/program" "$tmp/old/libkeel.so.0"
  LD_LIBRARY_PATH=$tmp/old "$tmp/old/program" || fail "a program of 0.1.0: expected to run with the library of 0.1.0"
  status=0
  said=$("$tmp/old/program" 2>&1) || status=$?
  [[ $status == 127 && $said == *libkeel.so.0:* ]] ||
    fail "a program of 0.1.0: expected the loader to miss libkeel.so.0, got status $status and '$said'"

  step "a program asks for names in the version that it was linked against"
  "$CC" "$tmp/old/program.c" -o "$tmp/old/versioned" "$lib/libkeel.so"
  asked=$(nm --dynamic --undefined-only "$tmp/old/versioned" | grep keel_)
  [[ $asked == *"keel_version@KEEL_${version%.*}" ]] || fail "keel_version: expected version KEEL_${version%.*}, got $asked"
  if [[ $nn == ON ]]; then
    step "libkeel lends what libkeel_nn uses and no more; there is one copy of each"
    internal() { nm --dynamic --without-symbol-versions "$1" "$2" | grep --only-matching '_ZN4keel8internal.*' | sort; }
    lent=$(internal --defined-only "$lib/libkeel.so") used=$(internal --undefined-only "$lib/libkeel_nn.so")
    [[ -n $lent && $lent == "$used" ]] || fail "keel::internal: expected what libkeel_nn uses,"$'\n'"$used"$'\n'"got"$'\n'"$lent"
  fi
fi

if [[ $program == ON ]]; then
  step "the program runs and knows its version"
  said=$("$prefix/bin/keel" --version)
  [[ $said == *"$version"* ]] || fail "keel --version: expected $version, got $said"
  if [[ -e $build/bin/keel-lab ]]; then
    "$prefix/bin/keel" lab list >/dev/null || fail "keel lab list, with keel-lab installed beside it"
  fi
fi

step "C++ through find_package(keel)"
# A static library's package looks for Highway, here by pkg-config.
"$CMAKE" -G Ninja -S "$here/cpp" -B "$tmp/cpp" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_CXX_COMPILER="$CXX" \
  -DKEEL_VERSION="$version" -DKEEL_NN="$nn" -DCMAKE_DISABLE_FIND_PACKAGE_hwy=ON --no-warn-unused-cli --log-level=WARNING
"$CMAKE" --build "$tmp/cpp"
"$tmp/cpp/consumer"
if [[ $nn == ON ]]; then
  "$tmp/cpp/nn_consumer"
  "$tmp/cpp/team_consumer"
fi

step "A component that is not there"
mkdir "$tmp/missing"
printf '%s\n' 'cmake_minimum_required(VERSION 3.25)' 'project(missing CXX)' 'find_package(keel REQUIRED COMPONENTS other)' \
  >"$tmp/missing/CMakeLists.txt"
! "$CMAKE" -G Ninja -S "$tmp/missing" -B "$tmp/missing/build" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_CXX_COMPILER="$CXX" \
  >"$tmp/missing/log" 2>&1 || fail 'find_package found the component "other"'
tr -s ' \n' ' ' <"$tmp/missing/log" | grep 'has no component other' >/dev/null ||
  fail "find_package: no word on the component: $(cat "$tmp/missing/log")"

step "C through pkg-config"
[[ $(pkg-config --modversion keel) == "$version" ]] || fail "keel.pc: expected version $version"
read -ra flags <<<"$(pkg-config --cflags keel)"
read -ra libs <<<"$(pkg-config --libs "${link_static[@]}" keel) -lm"
"$CC" -std=c11 -pedantic -Wall -Wextra -Werror "${flags[@]}" "$here/c/consumer.c" -o "$tmp/consumer" "${libs[@]}"
"$tmp/consumer" "$version"

step "the quickstart of the README"
sed -n '/^```cpp$/,/^```$/p' "$here/../../README.md" | sed '/^```/d' >"$tmp/quickstart.cc"
[[ -s $tmp/quickstart.cc ]] || fail "README.md has no C++ block"
"$CXX" -std=c++20 -Wall -Wextra -Werror "${flags[@]}" "$tmp/quickstart.cc" -o "$tmp/quickstart" "${libs[@]}"
"$tmp/quickstart"
