# A short front for CMake: `make run` and `make test` are all that a new machine needs.

CTEST = ctest --output-on-failure --no-tests=error
MODEL = models/asynct-tiny
DIFF_ENV ?= .venv-diff

.PHONY: run build deps test test-cpp test-python test-diff test-page test-gpu test-gpu-python asan tsan asan-quick fuzz-smoke fuzz-requests format format-check tidy clean

# Builds the program alone; the tests are left to `make test`.
run: deps
	cmake --preset release
	cmake --build build --target asynct
	build/asynct eval $(MODEL) --tasks arc_easy
	build/asynct eval $(MODEL) --tasks gsm8k --limit 100

build: deps
	cmake --preset release
	cmake --build build

# Installs missing Debian packages; says nothing when there are none.
deps:
	@tools/install_deps.sh

test: build test-python test-cpp

test-cpp: build
	cd build && $(CTEST)

test-python: build
	python3 tools/check_layers.py
	python3 -m unittest discover -s tests/tools -p '*_test.py'
	python3 -m unittest discover -s tests/cli -p '*_test.py'

# Against real libraries: tokenizers, transformers, lm-eval. Makes its own virtual environment (2 minutes, 2 GB).
# PyTorch's large tensors would be mapped and unmapped by each operator: half of the time then goes to page faults.
KEEP_PAGES = MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=17179869184 MALLOC_TOP_PAD_=67108864
test-diff: build $(DIFF_ENV)/ready
	$(KEEP_PAGES) PYTHONPATH=python $(DIFF_ENV)/bin/python -m pytest -q tests/python tests/diff

$(DIFF_ENV)/ready: tests/diff/requirements.txt tools/setup_diff_env.sh
	tools/setup_diff_env.sh $(DIFF_ENV)

asan tsan: deps
	cmake --preset $@
	cmake --build build-$@ --target unit_tests
	cd build-$@ && $(CTEST) -j $$(nproc)

# The part of asan that CI can afford: readers of files, block accounting, engine, evaluator, server; not the kernels.
QUICK = base_test tensor_test kv_test text_test chat_template_test model_loader_test engine_test eval_test http_test serve_test load_test
empty =
asan-quick: deps
	cmake --preset asan
	cmake --build build-asan --target $(QUICK)
	cd build-asan && $(CTEST) -j $$(nproc) -R '^($(subst $(empty) $(empty),|,$(QUICK)))$$'

# A minute of each fuzzer under asan and ubsan, from the kept seeds.
fuzz-smoke: deps
	@tools/install_deps.sh clang-14 libclang-rt-14-dev
	cmake --preset fuzz
	cmake --build build-fuzz --target fuzzers
	fuzz/smoke.sh build-fuzz

# Kernels on the GPU of this machine (Hopper); fails where there is none. GPU_TEST names a binary that was built elsewhere.
GPU_TEST ?= build/gpu_test
SANITIZE ?= compute-sanitizer --error-exitcode 1
CHECKED = *equals_the_reference/?:*DecodeWide*span*:PrefillBits.are_decodes:PlainNan*:Tile*:LinearNan*
test-gpu: $(GPU_TEST)
	$(GPU_TEST)
	for tool in memcheck synccheck initcheck; do \
	  $(SANITIZE) --tool $$tool $(GPU_TEST) --gtest_filter='$(CHECKED):DecodeSkips.*-TileCopy.maps*' || exit 1; done
	$(SANITIZE) --tool racecheck $(GPU_TEST) --gtest_filter='*Plain*equals_the_reference/?:*Decode*equals_the_reference/?:DecodeSkips*:Tile*:LinearNan*-TileCopy.maps*'
	@if $(PYTHON) -c 'import torch, nanobind' 2>/dev/null; then $(MAKE) test-gpu-python; \
	  else echo "asynct.torch_ops is not tested: $(PYTHON) lacks torch or nanobind"; fi

build/gpu_test: build

# asynct.torch_ops on the same GPU. TORCH_OPS=installed tests a wheel that was built elsewhere.
PYTHON ?= python3
TORCH_OPS ?= build
test-gpu-python:
ifeq ($(TORCH_OPS),build)
	cmake -S . -B build-python -G Ninja -DASYNCT_PYTHON=ONLY -DASYNCT_TESTS=OFF \
	  -DPython_EXECUTABLE=$$($(PYTHON) -c 'import sys; print(sys.executable)')
	cmake --build build-python --target asynct_torch_ops
	PYTHONPATH=python $(PYTHON) -m pytest -q tests/python_gpu
else
	$(PYTHON) -m pytest -q tests/python_gpu
endif

# The server's page in headless Chromium, beside a stand-in for the server and the real one.
PAGE_ENV ?= .venv-page
test-page: build $(PAGE_ENV)/ready
	@tools/install_deps.sh chromium
	$(PAGE_ENV)/bin/python tests/page/run.py
	$(PAGE_ENV)/bin/python tests/page/run.py --serve build/asynct $(MODEL)

$(PAGE_ENV)/ready: tests/page/requirements.txt
	@tools/install_deps.sh python3-venv
	python3 -m venv $(PAGE_ENV)
	$(PAGE_ENV)/bin/pip --disable-pip-version-check install -q --no-deps -r $<
	touch $@

# From request bodies to the scheduler: RUNS mutated requests (20 minutes for the default on one core).
RUNS ?= 1000000
fuzz-requests: deps
	@tools/install_deps.sh clang-14 libclang-rt-14-dev
	cmake --preset fuzz -DASYNCT_GRAMMAR=AUTO
	cmake --build build-fuzz --target fuzz_requests
	cp -r fuzz/seeds/requests build-fuzz/requests-corpus
	build-fuzz/fuzz_requests build-fuzz/requests-corpus -runs=$(RUNS) -timeout=10 -rss_limit_mb=2048

SOURCES = $(shell git ls-files '*.h' '*.cc' '*.cu' '*.cuh')
format:
	@tools/install_deps.sh clang-format-14
	clang-format-14 -i $(SOURCES)

format-check:
	@tools/install_deps.sh clang-format-14
	clang-format-14 --dry-run --Werror $(SOURCES)

# Some of gcc's warning options are unknown to clang; the extension is not part of `build`.
tidy: build
	@tools/install_deps.sh clang-tidy-14
	git ls-files 'src/*.cc' ':!src/asynct/python/module.cc' | xargs -P $$(nproc) -n 1 clang-tidy-14 -p build --quiet --extra-arg=-Wno-unknown-warning-option

clean:
	rm -rf build build-*
