# make help lists the targets.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NATIVE := $(shell find native -name '*.cpp' -o -name '*.hpp' -o -name '*.h' -o -name CMakeLists.txt) CMakeLists.txt

.DEFAULT_GOAL := help
.PHONY: help env demo test test-long chromium test-ui test-engines test-clusters check docs faults hostile kindness soak fuzz fuzz-long bench sanitize protos clean

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

env: $(VENV)/.installed ## the environment in .venv: dependencies, torch, native build

$(VENV)/.installed: pyproject.toml $(NATIVE)
	@tools/make_env $(PYTHON) $(VENV)
	@touch $@

.venv-tf/.installed: ## TensorFlow in an environment of its own, for the tests that look for it there
	@$(PYTHON) -m venv .venv-tf && .venv-tf/bin/python -m pip -qq install tensorflow-cpu grpcio click rich
	@touch $@

.venv-jax/.installed: tools/make_jax_env
	@if tools/make_jax_env $(PYTHON) .venv-jax; then touch $@; else echo "no jax: the tests of real JAX processes are skipped"; fi

.venv-engines/.installed: ## engines that read stored traces (1.2 GB), for the tests that run their queries
	@$(PYTHON) -m venv .venv-engines && .venv-engines/bin/python -m pip -qq install chdb==4.4.0 duckdb fastparquet pandas polars pyarrow \
	  && touch $@ || echo "no engines: the tests of docs/store.md run with pyarrow and DuckDB alone"

.venv-spark/.installed: ## Spark and Ray, in an environment of their own (1.3 GB)
	@$(PYTHON) -m venv .venv-spark && .venv-spark/bin/python -m pip -qq install 'pyspark>=4.0' 'ray[data]' aiohttp pandas
	@touch $@

.bench/xprof/.installed: ## XProf, which tests and bench ask for the lines that it derives
	@$(PYTHON) -m venv .bench/xprof && .bench/xprof/bin/python -m pip -qq install xprof==2.24.2
	@touch $@

demo: env ## profd, a real training loop, a 3 s capture and its answer; minutes, the first time
	@$(BIN)/python demo/run.py

test: env ## lint, types, every test, the client on other Pythons
	@$(MAKE) --no-print-directory -j2 --output-sync check .venv-jax/.installed .venv-engines/.installed
	@tools/test_other_pythons $(BIN)/python tools/run_tests.py

test-clusters: env ## captures of many hosts, with a real Slurm and sshd; names what the machine lacks for that
	@tools/test_clusters $(VENV)

test-engines: env .venv-spark/.installed ## the queries of docs/store.md and docs/hosts.md by Spark and Ray, with executors of their own; needs Java 17; minutes
	@command -v java >/dev/null || { echo "test-engines: no java: apt-get install openjdk-17-jre-headless" >&2; exit 1; }
	@PROFD_TEST_ENGINES=1 PROFD_TEST_LONG=1 $(BIN)/python -m pytest -q -rs -k 'Spark or Ray' tests/unit/profd/segments/test_engines.py tests/integration/fleet/test_ssh_between_hosts.py

chromium: env ## a Chromium for the tests of the pages, where there is none, and what drives it
	@$(BIN)/python -m pip -qq install 'playwright>=1.50'
	@command -v chromium-headless-shell chromium google-chrome >/dev/null \
		|| { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get -qq update && apt-get -qq install -y chromium-headless-shell >/dev/null; } \
		|| $(BIN)/python -m playwright install --with-deps --only-shell chromium

test-ui: chromium ## the pages of `profctl ui` in a real Chromium, which it installs where there is none
	@PROFD_TEST_UI=1 $(BIN)/python -m pytest -q tests/unit/profclient/ui tests/integration/ui

check: env ## lint, format and types, of Python and of the page's modules
	@$(BIN)/ruff check client daemon tests demo docs/conf.py tools bench kindness soak
	@$(BIN)/ruff format --check -q client daemon tests demo docs/conf.py tools bench kindness soak
	@$(BIN)/mypy
	@tools/check_page

ROUNDS ?= 10
FAULTS := tests/integration/sdk/test_{faults,daemon_faults,forks,killed_while_arming,hostile_client,hostile_agent,clock_steps}.py \
  tests/integration/sdk_agent/test_{daemon_faults,arming,forks}.py tests/integration/recorder/test_faults.py \
  tests/integration/ingest/test_{streamer,service,hostile}.py tests/integration/daemon/test_removed_sockets.py
faults: env ## what goes wrong around a recording (the list in sdk/test_faults.py), ROUNDS=10 times in a row
	@for round in $$(seq $(ROUNDS)); do $(BIN)/python -m pytest -q -n 2 --dist loadgroup $(FAULTS) || exit 1; done

HOSTILE := tests/unit/profd/targets/errands tests/integration/kineto/test_{dead_disk,locked_names}.py \
  tests/integration/daemon/test_{dead_files,locked_names,locked_renames}.py \
  tests/integration/{kineto,pyspy}/test_other_program.py tests/integration/pyspy/test_confinement.py \
  tests/integration/daemon/test_{fair_shares,old_kernels,small_disk,audit,hostile_bundles}.py tests/integration/sdk/test_{daemon_faults,hostile_agent,hostile_client}.py \
  tests/integration/ingest/test_hostile.py tests/integration/cli/test_export_commands.py \
  tests/unit/profd/workers/test_{confinement,calls}.py tests/unit/profd/targets/test_identity.py tests/unit/profd/{trust,observers} tests/unit/profclient/ui tests/integration/ui/test_server.py \
  tests/unit/profclient/{test_layout,cli/test_words_of_hosts,fleet/test_{collect,messages,records}}.py \
  tests/unit/profd/attached/agents tests/unit/profd/{telemetry/test_metrics_server,rpc/test_{door,carried},decode/test_xspace_cost,sources/kineto/test_{floods,drain},sources/jax/test_finder,fairness/test_few,rpc/test_captures,answers/ranks/test_matching}.py
hostile: env ## hostile users: what was found in shared use, tried again (as root, to be somebody else)
	@$(BIN)/python -m pytest -v -n 2 --dist loadgroup $(HOSTILE)

MINUTES ?= 10
SHARDS ?=
kindness: env .venv-jax/.installed ## other people's programs under captures, SHARDS="storm kineto ..." for MINUTES=10 each; docs/kindness.md
	@$(BIN)/python -m kindness $(SHARDS) --minutes $(MINUTES)

KILLS ?= 1000
SEED ?=
CAPTURES ?=
QUESTIONS ?= 0
SOAKED = $(if $(CAPTURES),--captures $(CAPTURES) --questions $(QUESTIONS),--kills $(KILLS)) $(if $(SEED),--seed $(SEED))
soak: env ## kills at random moments, KILLS=1000 SEED=; or long use, CAPTURES=10000 QUESTIONS=100000; docs/reliability.md
	@$(BIN)/python -m soak $(SOAKED)

fuzz: env ## property tests with new random inputs
	@PROFD_HYPOTHESIS=random $(BIN)/python -m pytest -q -k "property or fuzz" tests/unit

FUZZ_MINUTES ?= 10
fuzz-long: env ## the readers of others' bytes, each for FUZZ_MINUTES=10: chunks, ingest, records of CUPTI
	@tools/fuzz_chunks $(VENV) $$(( $(FUZZ_MINUTES) * 60 ))
	@tools/fuzz_ingest $(VENV) $$(( $(FUZZ_MINUTES) * 60 ))
	@tools/fuzz_cupti $$(( $(FUZZ_MINUTES) * 60 ))

LONG := $(shell grep -rl 'support.long import' tests --include='test_*.py')
test-long: env ## tests of half a minute and more, most of it waiting; bench/gpu against stand-ins, before it is taken to a GPU
	@PROFD_TEST_LONG=1 $(BIN)/python -m pytest -q -n 2 --dist loadgroup $(LONG)

bench: env ## the numbers of docs/performance.md: ours, peer and floor in one run
	@$(BIN)/python -m bench

sanitize: env ## the native code's tests under ASan and UBSan
	@tools/sanitize $(VENV)

.venv-docs/.installed: pyproject.toml
	@$(PYTHON) -m venv .venv-docs && .venv-docs/bin/python -m pip -qq install --upgrade 'pip>=25.1'
	@.venv-docs/bin/python -m pip -qq install --group docs && touch $@

docs: .venv-docs/.installed ## the pages as a web site in build/site; every link between pages is checked
	@tools/make_docs .venv-docs build/site

protos: ## generated code anew, with the old generator that runs beside every protobuf
	@tools/generate_protos

clean: ## what the other targets made
	rm -rf $(VENV) .venv-docs .venv-engines .venv-jax .venv-spark .venv-protoc build .mypy_cache .ruff_cache .pytest_cache .hypothesis
