# The few commands; CMake and its presets do the work. `make help` lists them.

JOBS ?= $(shell nproc)
ARGS ?=
SECONDS ?= 60
PREFIX ?= /usr/local
DESTDIR ?=

.DEFAULT_GOAL := build
.PHONY: asan bench build clean cuda debug figures format fuzz gpu-figures help install lint package \
	python run setup test tsan

# $(call configure,PRESET): quiet unless it fails.
configure = mkdir -p $(@D) && cmake --preset $(1) > $(@D)/configure.log 2>&1 \
	|| { cat $(@D)/configure.log; rm -f $@; exit 1; }; touch $@
CONFIGURATION := CMakePresets.json CMakeLists.txt $(wildcard cmake/*.cmake)
BUILD = cmake --build --parallel $(JOBS) --preset

help:  ## List these commands
	@sed -n 's/^\([a-z-]*\):[^#]*## */  make \1\t/p' $(MAKEFILE_LIST) | expand -t 20

setup:  ## Install the missing Debian packages
	@bash scripts/setup.sh

build/build.ninja: $(CONFIGURATION) | setup
	@$(call configure,release)

build: build/build.ninja  ## Build Release; the program is build/talon
	@$(BUILD) release --target talon

install: build/build.ninja  ## Build and install (PREFIX=/usr/local, DESTDIR=...)
	@$(BUILD) release --target talon manual
	@DESTDIR=$(DESTDIR) cmake --install build --prefix $(PREFIX)

package: build/build.ninja  ## Build a Debian package, build/talon_*.deb
	@$(BUILD) release --target talon manual
	@cd build && cpack

run: build  ## Build and show what it does; with ARGS="--prompt ... -n 100" generate text
	@build/talon $(if $(ARGS),run $(ARGS),show)

test: build/build.ninja  ## Build everything and run all tests
	@bash scripts/setup.sh --tests
	@cmake --preset release -DTALON_NPM_INSTALL=ON > build/configure.log 2>&1 \
		|| { cat build/configure.log; exit 1; }
	@$(BUILD) release
	@ctest --preset release

python: build/build.ninja  ## Build the Python package; PYTHONPATH=build/python finds it
	@bash scripts/setup.sh --python
	@cmake --preset release > build/configure.log 2>&1 || { cat build/configure.log; exit 1; }
	@$(BUILD) release --target talon_python

bench: build  ## Measure the ops, then decoding (ARGS="--shape llama-1b ..." for decoding)
	@build/talon bench ops
	@build/talon bench decode $(ARGS)

figures: build  ## Run all CPU benchmarks of the docs and write their tables (quiet machine)
	@python3 scripts/figures.py $(ARGS)

gpu-figures: build-cuda/build.ninja  ## The same for docs/gpu.md, on a machine with a GPU
	@$(BUILD) cuda --target talon
	@python3 scripts/figures.py --gpu $(ARGS)

debug: build-debug/build.ninja  ## Build with all checks and run all tests
	@$(BUILD) debug
	@ctest --preset debug

build-debug/build.ninja: $(CONFIGURATION) | setup
	@$(call configure,debug)

asan: build-asan/build.ninja  ## Run the unit tests under AddressSanitizer and UBSan
	@$(BUILD) asan
	@ctest --preset asan

build-asan/build.ninja: $(CONFIGURATION) | setup
	@$(call configure,asan)

cuda: build-cuda/build.ninja  ## Build the CUDA backend (with nvcc), test what needs no GPU
	@$(BUILD) cuda
	@ctest --preset cuda

build-cuda/build.ninja: $(CONFIGURATION) | setup
	@$(call configure,cuda)

tsan: build-tsan/build.ninja  ## Run the tests with threads under ThreadSanitizer
	@$(BUILD) tsan
	@ctest --preset tsan

build-tsan/build.ninja: $(CONFIGURATION) | setup
	@$(call configure,tsan)

fuzz: build-fuzz/build.ninja  ## Run each fuzz target for SECONDS (60)
	@$(BUILD) fuzz
	@bash scripts/fuzz.sh $(SECONDS)

build-fuzz/build.ninja: $(CONFIGURATION) | setup
	@bash scripts/setup.sh --fuzz
	@$(call configure,fuzz)

lint: build/build.ninja  ## Check format, clang-tidy, include directions, file contents, words
	@bash scripts/setup.sh --lint
	@bash scripts/lint.sh

format:  ## Format all sources in place
	@bash scripts/setup.sh --lint
	@find src tests fuzz \( -name '*.cc' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \) -exec clang-format -i {} +

clean:  ## Remove the build folders
	@rm -rf build build-cuda build-debug build-asan build-tsan build-fuzz
