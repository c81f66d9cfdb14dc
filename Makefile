# The entry point: `make` alone lists the targets. The work is done by CMake (see CMakePresets.json for the builds)
# and scripts/; everything lands in build/.

JOBS := $(shell nproc)
PREFIX := /usr/local
LAB := OFF
NN := $(LAB)
CUDA := OFF
FUZZ_SECONDS := 600
SETUP := yes

MAKEFLAGS += --no-print-directory
.PHONY: help setup setup-dev setup-install build test test-all wheel docs lab playground verdicts bench sanitize tsan clang static fuzz cuda cross format \
  tidy install clean

help:  ## show this list
	@echo 'Keel: scaled dot-product attention for C++20 and Python'
	@echo
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/  make \1\t\2/p' Makefile | expand -t 18
	@echo
	@echo 'Settings: JOBS=$(JOBS)  PREFIX=$(PREFIX)  NN=$(NN)  LAB=$(LAB)  CUDA=$(CUDA)  FUZZ_SECONDS=$(FUZZ_SECONDS)  SETUP=$(SETUP) (no: install no packages)'

build: build/build.ninja  ## build the library and the program into build/lib and build/bin
	@cmake --build build -j $(JOBS)

test: build  ## build, then run every test
	@[ '$(SETUP)' = no ] || scripts/setup.sh browser || echo 'test: no Chromium, so the lab report is not opened in a browser'
	@cmake --build build --target keel_tests -j $(JOBS)
	@SETUP=$(SETUP) scripts/python.sh environment
	@ctest --preset release --progress -j $(JOBS)
	@SETUP=$(SETUP) scripts/python.sh test

test-all: test clang static  ## make test, make clang and make static, build Keel as part of another project, run the deep tests
	@ctest --preset release --build-config Deep --label-regex deep
	@SETUP=$(SETUP) scripts/python.sh deep

wheel: build  ## build the Python wheel into build/wheel
	@SETUP=$(SETUP) scripts/python.sh wheel

docs:  ## build the documentation site into build/docs/site
	@SETUP=$(SETUP) scripts/python.sh docs

lab: build/build.ninja  ## build the lab, then run it: measure what the scaling does and write a report
	@cmake --build build --target keel_program keel_lab_program -j $(JOBS)
	@build/bin/keel lab

playground: build  ## build, then write attention to play with, one page, into build/playground
	@build/bin/keel lab playground --out build/playground

verdicts: build  ## run the lab with five seeds, with and without AVX-512, and compare its verdicts (an hour)
	@scripts/verdicts.py --out build/verdicts

bench: build  ## build, then measure speed on this machine
	@build/bin/keel bench

# $(call check,PRESET,TARGETS): builds the tests of another build, and TARGETS, and runs them.
check = cmake --build build/$(1) --target keel_tests $(2) -j $(JOBS) && ctest --preset $(1) --progress -j $(JOBS)

sanitize: build/asan-ubsan/build.ninja  ## run the tests under the address and undefined-behaviour sanitizers
	@$(call check,asan-ubsan)

tsan: build/tsan/build.ninja  ## run the tests under the thread sanitizer
	@$(call check,tsan)

clang: build/clang/build.ninja  ## build with clang, without warnings, and run the tests
	@$(call check,clang,all)

static: build/static/build.ninja  ## run the tests on static libraries without oneTBB
	@$(call check,static,all)

fuzz: build/fuzz/build.ninja  ## fuzz for FUZZ_SECONDS
	@cmake --build build/fuzz --target fuzzers -j $(JOBS)
	@scripts/fuzz.sh build/fuzz $(FUZZ_SECONDS)

cuda: build/build.ninja  ## build libkeel_cuda, for NVIDIA GPUs; installs nvcc into build/cuda where there is none
	@SETUP=$(SETUP) scripts/cuda.sh >/dev/null
	@cmake -B build -DKEEL_BUILD_CUDA=ON >/dev/null
	@cmake --build build --target keel_cuda_library -j $(JOBS)

cross:  ## compile the SIMD kernels for NEON, SVE and SVE2
ifneq ($(SETUP),no)
	@scripts/setup.sh cross
endif
	@scripts/cross.sh

format: setup-dev  ## format every C and C++ file
	@git ls-files -z '*.h' '*.cc' '*.c' | xargs -0 clang-format -i

tidy: setup-dev build/dev/build.ninja  ## check the sources of src/ and bench/ with clang-tidy
	@git ls-files -z 'src/*.cc' 'bench/*.cc' | xargs -0 -P $(JOBS) -n 1 sh -c 'clang-tidy -p build/dev --quiet "$$0" 2>/dev/null'

install: | setup-install  ## install the library and the program under PREFIX; with NN=ON the training layer, LAB=ON the lab, CUDA=ON libkeel_cuda
	@echo 'Configuring build/install' && cmake --preset install -DKEEL_BUILD_NN=$(NN) -DKEEL_BUILD_LAB=$(LAB) -DKEEL_BUILD_CUDA=$(CUDA) >/dev/null
	@cmake --build build/install -j $(JOBS)
	@cmake --install build/install --prefix '$(PREFIX)'

clean:  ## remove everything that was built
	@rm -rf build

# Packages

setup:
ifneq ($(SETUP),no)
	@scripts/setup.sh
	@scripts/setup.sh playground || echo 'setup: no compiler for WebAssembly, so the pages of the lab show recorded rows'
endif

setup-install:
ifneq ($(SETUP),no)
	@scripts/setup.sh $(if $(filter ON,$(NN)),,install)
endif

setup-dev:
ifneq ($(SETUP),no)
	@scripts/setup.sh dev
endif

# Configuring happens once; afterwards the build itself notices when a CMakeLists.txt changes. CMake's errors and warnings
# go to stderr; the rest of its output is not needed here.

configure = echo 'Configuring $(@D)' && cmake --preset $(1) >/dev/null

build/build.ninja: CMakePresets.json | setup
	@$(call configure,release)
build/fuzz/build.ninja build/clang/build.ninja: build/%/build.ninja: CMakePresets.json | setup-dev
	@$(call configure,$*)
build/%/build.ninja: CMakePresets.json | setup
	@$(call configure,$*)
