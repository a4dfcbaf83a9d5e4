# Short names for what CMake, CTest and the scripts in tools/ do.
# make = build; make test = build, every test, every check.
BUILD ?= build
CMAKE_FLAGS ?=
COVERAGE_LEAST = 95 # percent of branches
OPGEN_IN = $(wildcard tools/opgen*.[ch]) src/op/ops.def src/op/op_rows.h src/op/dtype.def src/nn/layers.def $(wildcard src/op/math_*.h) $(wildcard include/*.h)

all: $(BUILD)/build.ninja
	@cmake --build $(BUILD)

$(BUILD)/build.ninja: tools/setup.sh
	@tools/setup.sh
	@mkdir -p $(BUILD)
	@cmake -S . -B $(BUILD) -G Ninja $(CMAKE_FLAGS) >$(BUILD)/configure.log || (cat $(BUILD)/configure.log; false)

# The generated headers alone, without CMake: enough for an editor or to compile one file.
gen: $(BUILD)/gen/carbide_ops.h
$(BUILD)/gen/carbide_ops.h: $(OPGEN_IN)
	@mkdir -p $(BUILD)/gen
	@$(CC) -std=gnu11 -O1 -Isrc tools/opgen*.c -o $(BUILD)/gen/opgen
	@$(BUILD)/gen/opgen . $(BUILD)/gen

test: all
	@ctest --test-dir $(BUILD) -j 3 --output-on-failure # one more than cores: some wait
	@tools/lint.sh $(BUILD)

lint: all
	@tools/lint.sh $(BUILD)

format:
	@find src plugins include models data cli tests examples bench tools -name '*.[ch]' | xargs python3 tools/wrap_comments.py
	@find src plugins models data cli tests examples bench tools -name '*.c' | xargs clang-format -i

# What Carbide is for, on real input: under a minute after the build. The pictures lie in $(BUILD).
demo: $(BUILD)/build.ninja
	@cmake --build $(BUILD) --target shipped hello photo
	@$(BUILD)/hello
	@echo
	@$(BUILD)/photo examples/data/astronaut.jpg $(BUILD)
	@echo
	@$(BUILD)/carbide bench --demo

bench: all
	@$(BUILD)/carbide bench

# docs/ops.md, from the op table.
docs: all
	@$(BUILD)/carbide ops --markdown >docs/ops.md

# Random graphs, then the parsers, SECONDS each (docs/testing.md).
fuzz: all
	@$(BUILD)/fuzz $$(date +%s) 20000 20
	@tests/fuzz/parsers.sh $(BUILD)/fuzzers seconds=$(or $(SECONDS),120)

# Random programs beside NumPy: half an hour on two cores.
oracle: all
	@tests/oracle/python.sh tests/oracle/programs.py run $$(date +%s) 20000 10 2

# Gradients beside PyTorch's, where it is installed: ten minutes.
gradients: all
	@tests/oracle/python.sh tests/oracle/gradients.py 200000 $$(date +%s)

# 100,000 compiled calls and 1,000 compilations leave memory flat: about a minute.
soak: all
	@$(BUILD)/soak 100000 1000

# Small wrong changes of the source, each of which a named test must notice (docs/testing.md).
# make mutants ONLY="fuse.c test_memory" JOBS=2 RESUME=1: some of them, two at once, without those
# that were killed before.
mutants:
	@tools/mutants.py --build $(BUILD) --jobs $(or $(JOBS),1) $(if $(RESUME),--resume) $(ONLY)

asan:
	@$(MAKE) BUILD=build-asan CMAKE_FLAGS=-DCARBIDE_SANITIZE=address,undefined
	@ctest --test-dir build-asan --output-on-failure

tsan:
	@$(MAKE) BUILD=build-tsan CMAKE_FLAGS=-DCARBIDE_SANITIZE=thread
	@ctest --test-dir build-tsan --output-on-failure

# What the tests reach of src; `tools/coverage.py build-coverage --missed FILE` lists what they do not.
coverage:
	@$(MAKE) BUILD=build-coverage CMAKE_FLAGS=-DCARBIDE_COVERAGE=ON
	@find build-coverage -name '*.gcda' -delete
	@ctest --test-dir build-coverage --output-on-failure
	@tools/coverage.py build-coverage --least $(COVERAGE_LEAST)

install: $(BUILD)/build.ninja
	@cmake --build $(BUILD) --target shipped
	@cmake --install $(BUILD) $(if $(PREFIX),--prefix $(PREFIX))
	@if [ -z "$(DESTDIR)" ] && [ "$$(id -u)" = 0 ]; then ldconfig; fi # a folder that is new to the loader

clean:
	@rm -rf $(BUILD) build-asan build-tsan build-coverage

.PHONY: all gen test lint format demo bench docs fuzz oracle gradients soak mutants asan tsan coverage install clean
