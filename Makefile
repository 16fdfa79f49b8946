# `make` lists the commands. Each sets up all it needs in .venv, from the package registries.

# The first of these that is new enough and can make virtual environments; PYTHON=... chooses another.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$p && break; done)
VENV := $(CURDIR)/.venv
READY := .venv/.ready
CLASSES := build/java/spark.jsa

export PATH := $(VENV)/bin:$(PATH)
export PYSPARK_PYTHON := $(VENV)/bin/python
export PYSPARK_DRIVER_PYTHON := $(VENV)/bin/python
export SPARK_LOCAL_IP := 127.0.0.1
# Another Spark on this machine is not the one that .venv was set up with.
unexport SPARK_HOME SPARK_CONF_DIR PYSPARK_SUBMIT_ARGS PYTHONPATH PYTHONHOME
# The tests start hundreds of processes: without kept byte code each import takes twice as long.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-fast coverage hooks check types docs notebooks soak matrix dbt bench dist wheels clean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

setup: $(READY) ## install everything into .venv (the other commands do it when needed)

demo: $(READY) ## load real flights, stream more, ask questions: Spark in local mode
	@.venv/bin/python -m tidemark.jobs.demo

test: $(CLASSES) ## run all tests
	@# Many wait for a server or a process: two workers for each of two cores. With three, requests that the
	@# tests of stores give a second run out of time.
	@.venv/bin/python -m pytest -n 4 --durations 10

test-fast: $(READY) ## run the tests that need no Spark and take no more than a moment each
	@.venv/bin/python -m pytest -n 3 -m 'not spark and not slow' --hypothesis-profile fast --durations 10

coverage: $(READY) ## run the tests that need no Spark and say which lines and branches they reach
	@.venv/bin/python -m pytest -n 2 -m 'not spark' -q --cov --cov-report term:skip-covered

hooks: $(READY) ## check what is committed, before it is: lint, format, types, rooms
	@.venv/bin/pre-commit install

check: $(READY) docs ## lint, format, types, and the site with every link inside it
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@$(MAKE) -s types

types: $(READY) ## check the types of the packages, the tests and the benches
	@rm -rf build/types && mkdir -p build/types/tidemark
	@for name in jobs query sketches stream warehouse; do ln -sfn ../../../$$name build/types/tidemark/$$name; done
	@for name in __init__.py first_use.py option_table.py py.typed; do ln -sf ../../../tidemark/$$name build/types/tidemark/$$name; done
	@.venv/bin/mypy

docs: $(READY) ## build what changed of the documentation into build/docs, from nothing but this folder
	@# A page with a warning would be taken for a finished one the next time.
	@.venv/bin/python -m sphinx -q -W --keep-going -d build/doctrees docs build/docs || { rm -rf build/doctrees; exit 1; }
	@echo "build/docs/index.html"

notebooks: $(READY) ## execute the notebooks of the documentation anew
	@.venv/bin/python docs/notebooks/execute.py

soak: $(CLASSES) ## hundreds of kills and random worlds, thousands of damages and repairs, a stream under mixed faults
	@TIDEMARK_SOAK_KILLS=200 TIDEMARK_SOAK_MINUTES=12 TIDEMARK_SOAK_FLIPS=2000 TIDEMARK_SOAK_WORLDS=300 TIDEMARK_SOAK_VALUES=2000 \
		TIDEMARK_SOAK_DISK_PAGES=1 TIDEMARK_SOAK_TEXTS=400 TIDEMARK_SOAK_STREAMS=2 \
		.venv/bin/python -m pytest -s -o faulthandler_timeout=0 tests/crash/test_kills.py tests/crash/test_removals.py tests/crash/test_races.py tests/crash/test_store.py tests/crash/test_flips.py \
		tests/crash/test_full_disks.py tests/stream/test_kafka.py tests/worlds/test_random_worlds.py tests/worlds/test_changing_worlds.py tests/query/test_comparisons.py \
		tests/jobs/test_text_three_ways.py tests/sketches/test_monitoring.py tests/query/test_alert_sites.py \
		-k 'random or any_point or at_once or spark_submit'
	@# All cases of tests of which the usual run takes some.
	@TIDEMARK_SOAK_CASES=1 TIDEMARK_SOAK_DRAWS=5 .venv/bin/python -m pytest -o faulthandler_timeout=0 \
		$$(grep -lE 'tests.soak import .*(some|draws|HAS_ALL|DRAWS)|^ *@given' tests/*/test_*.py)
	@# Whole warehouses that hypothesis draws, others each time.
	@TIDEMARK_SOAK_DRAWS=35 .venv/bin/python -m pytest -o faulthandler_timeout=0 --hypothesis-profile=explore -m slow tests/test_whole.py
	@TIDEMARK_SOAK_DRAWS=35 .venv/bin/python -m pytest -o faulthandler_timeout=0 --hypothesis-profile=explore -m 'slow and hypothesis' \
		$$(grep -lF 'draws(' tests/*/test_*.py)

matrix: $(READY) ## run the tests of Spark with each version of Spark that the wheel is for
	@.venv/bin/python -m tests.versions

dbt: build/dbt/.ready ## run a project of dbt over a warehouse, in an environment of its own
	@build/dbt/bin/python -m pytest -q tests/query/test_dbt.py

# dbt wants older versions of some packages. Its environment has these, and all others of .venv.
build/dbt/.ready: requirements-dbt.txt $(READY)
	@rm -rf build/dbt && .venv/bin/python -m venv --without-pip build/dbt
	@.venv/bin/python -m pip --python build/dbt/bin/python install -q --disable-pip-version-check --require-hashes \
		--no-deps -r requirements-dbt.txt
	@for folder in build/dbt/lib/python3*/site-packages; do \
		.venv/bin/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
		>$$folder/others.pth; done
	@touch $@

bench: $(READY) ## measure against other engines on this machine
	@.venv/bin/python -m bench

dist: $(READY) ## build a wheel, an sdist and a zip for spark-submit --py-files into dist/
	@.venv/bin/python tools/dist.py

wheels: $(READY) ## install the wheel alone into an empty environment of each Python that is here, and use it
	@TIDEMARK_WHEELS=all .venv/bin/python -m pytest -v -s tests/jobs/test_wheel.py

$(CLASSES): $(READY) tests/java.py tests/spark_workers/spark_daemon.py
	@# Beside it the byte code of the tests is written, which each worker of the first run would do by itself.
	@.venv/bin/python -m pytest --collect-only -q >/dev/null & .venv/bin/python -m tests.java; code=$$?; wait; exit $$code

clean: ## remove .venv and what tools leave behind
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse metastore_db
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): requirements.txt requirements-java.txt pyproject.toml jobs/spark/prepare_spark.py jobs/spark/java_home.sh
	@test -n "$(PYTHON)" && $(PYTHON) -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' || { \
		echo 'tidemark needs Python 3.11 or newer with the venv module (on Debian: the package python3-venv).' >&2; \
		echo 'Looked for: $(or $(PYTHON),python3 and python3.13 to python3.11). Another can be named: make setup PYTHON=/path/to/python3' >&2; \
		exit 1; }
	@echo 'Setting up .venv: a minute or two, once.'
	@$(PYTHON) -m venv .venv
	@awk '/^[a-z]/ { take = /^(packaging|setuptools|wheel)==/ } take' requirements.txt > .venv/requirements-build.txt
	@.venv/bin/python -m pip install -q --disable-pip-version-check --require-hashes --no-deps -r .venv/requirements-build.txt
	@# pyspark comes as source, and half a gigabyte of jars need not be compressed anew for its wheel.
	@.venv/bin/python -m pip install -q --disable-pip-version-check --require-hashes --no-deps --no-build-isolation \
		--use-pep517 -C--build-option=--compression=stored -r requirements.txt
	@.venv/bin/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@sh jobs/spark/java_home.sh $(VENV) >/dev/null 2>&1 || \
		.venv/bin/python -m pip install -q --disable-pip-version-check --require-hashes --no-deps -r requirements-java.txt
	@.venv/bin/python -m tidemark.jobs.spark.prepare_spark >.venv/prepare.log 2>&1 || { cat .venv/prepare.log >&2; exit 1; }
	@touch $(READY)
