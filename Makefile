# Keel's front door: `make` alone lists what there is. The work is done by CMake (see CMakePresets.json for the builds)
# and scripts/; everything lands in build/.

JOBS := $(shell nproc)
PREFIX := /usr/local
FUZZ_SECONDS := 600
SETUP := yes

MAKEFLAGS += --no-print-directory
.PHONY: help setup setup-dev build test wheel lab bench sanitize tsan fuzz cross format tidy install clean

help:  ## show this list
	@echo 'Keel: scaled dot-product attention for C++20 and Python'
	@echo
	@sed -nE 's/^([a-z]+):[^#]*## (.*)/  make \1\t\2/p' Makefile | expand -t 18
	@echo
	@echo 'Settings: JOBS=$(JOBS)  PREFIX=$(PREFIX)  FUZZ_SECONDS=$(FUZZ_SECONDS)  SETUP=$(SETUP) (no: install no packages)'

build: build/build.ninja  ## build the library and the program into build/lib and build/bin
	@cmake --build build -j $(JOBS)

test: build  ## build, then run every test
	@[ '$(SETUP)' = no ] || scripts/setup.sh browser || echo 'test: no Chromium: no browser will open the report of the lab'
	@cmake --build build --target keel_tests -j $(JOBS)
	@SETUP=$(SETUP) scripts/python.sh environment
	@ctest --preset release --progress -j $(JOBS)
	@SETUP=$(SETUP) scripts/python.sh test

wheel: build  ## build the Python wheel into build/wheel
	@SETUP=$(SETUP) scripts/python.sh wheel

lab: build  ## build, then run the lab: what the scaling does, measured, and a report to read
	@build/bin/keel lab

bench: build  ## build, then measure speed on this machine
	@build/bin/keel bench

sanitize: build/asan-ubsan/build.ninja  ## run the tests under the address and undefined-behaviour sanitizers
	@cmake --build build/asan-ubsan --target keel_tests -j $(JOBS)
	@ctest --preset asan-ubsan --progress -j $(JOBS)

tsan: build/tsan/build.ninja  ## run the tests under the thread sanitizer
	@cmake --build build/tsan --target keel_tests -j $(JOBS)
	@ctest --preset tsan --progress -j $(JOBS)

fuzz: build/fuzz/build.ninja  ## fuzz for FUZZ_SECONDS
	@cmake --build build/fuzz --target fuzzers -j $(JOBS)
	@scripts/fuzz.sh build/fuzz $(FUZZ_SECONDS)

cross:  ## compile the SIMD kernels for NEON, SVE and SVE2
ifneq ($(SETUP),no)
	@scripts/setup.sh cross
endif
	@scripts/cross.sh

format: setup-dev  ## format every C and C++ file
	@git ls-files -z '*.h' '*.cc' '*.c' | xargs -0 clang-format -i

tidy: setup-dev build  ## check every source with clang-tidy
	@git ls-files -z 'src/*.cc' 'bench/*.cc' | xargs -0 -P $(JOBS) -n 1 sh -c 'clang-tidy -p build --quiet "$$0" 2>/dev/null'

install: build  ## install below PREFIX
	@cmake --install build --prefix '$(PREFIX)'

clean:  ## remove everything that was built
	@rm -rf build

# Packages

setup:
ifneq ($(SETUP),no)
	@scripts/setup.sh
endif

setup-dev:
ifneq ($(SETUP),no)
	@scripts/setup.sh dev
endif

# Configuring happens once; afterwards the build itself notices when a CMakeLists.txt changes. Errors and warnings of CMake
# come on stderr; the rest of what it says is of no use here.

configure = echo 'Configuring $(@D)' && cmake --preset $(1) >/dev/null

build/build.ninja: CMakePresets.json | setup
	@$(call configure,release)
build/fuzz/build.ninja: CMakePresets.json | setup-dev
	@$(call configure,fuzz)
build/%/build.ninja: CMakePresets.json | setup
	@$(call configure,$*)
