# `make demo` shows what shardtools does; `make test` runs its tests. Both need only Python 3.11+ and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
SOURCES := shardtools pipelines scripts tests

.PHONY: help demo demo-bench test test-slow check bench-peers clean distclean

help:
	@echo 'make demo         make sample data, pack it, verify it, look at it (core install, in $(VENV))'
	@echo 'make demo-bench   bench the demo as small files, WDS and MDS (installs torch and the reference readers too)'
	@echo 'make test         the fast tests (installs torch and the reference readers too)'
	@echo 'make test-slow    the slow tests'
	@echo 'make check        format, lint, types, make test'
	@echo 'make bench-peers  measure beside webdataset, MDSWriter and GNU tar; BENCH="--only files" for a part'
	@echo 'make clean        remove the demo and caches; make distclean removes $(VENV) too'
	@echo 'PYTHON=python3.12 make demo   takes another Python'

# A stamp is touched last, so an install that was interrupted is done again.
$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo 'expected Python 3.11 or newer as $(PYTHON); name another with PYTHON=python3.12 make ...' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.core: $(VENV)/.created pyproject.toml
	$(PIP) -e .
	@touch $@

$(VENV)/.train: $(VENV)/.created pyproject.toml constraints.txt
	$(PIP) -e '.[train]' -c constraints.txt
	@touch $@ $(VENV)/.core

$(VENV)/.tests: $(VENV)/.created pyproject.toml constraints.txt
	$(PIP) -e '.[dev,train]' -c constraints.txt
	@touch $@ $(VENV)/.core $(VENV)/.train

demo: $(VENV)/.core
	@rm -rf demo
	@printf '\n== 1. Make 2,000 small JPEG + JSON pairs, and 20,000 records of text as JSONL\n'
	$(BIN)/python scripts/make_sample_data.py demo
	@printf '\n== 2. Pack the pairs into WebDataset shards: tar files that read in one sweep\n'
	$(BIN)/shardtools pack demo/images demo/images-wds --to wds
	@printf '\n== 3. Pack the same pairs into MDS shards, for StreamingDataset\n'
	$(BIN)/shardtools pack demo/images demo/images-mds --to mds
	@printf '\n== 4. Pack the records into MDS shards; the columns are inferred from the first 1,000 records\n'
	$(BIN)/shardtools pack demo/docs.jsonl demo/docs-mds --to mds
	@printf '\n== 5. Pack the same records as rows of 2,048 tokens\n'
	$(BIN)/shardtools pack demo/docs.jsonl demo/tokens-mds --to mds --tokenizer demo/tokenizer --seq-len 2048
	@printf '\n== 6. Verify: every byte; nothing twice, stored or delivered; every sample against its source\n'
	$(BIN)/shardtools verify demo/images-wds --no-dup --deep --against demo/images
	$(BIN)/shardtools verify demo/docs-mds --against demo/docs.jsonl
	$(BIN)/shardtools verify demo/tokens-mds --against demo/docs.jsonl --tokenizer demo/tokenizer
	@printf '\n== 7. One bit flipped in a copy: readers would end there in silence\n'
	cp -r demo/images-wds demo/damaged
	printf 'X' | dd of=demo/damaged/train-000000.tar bs=1 seek=100000 conv=notrunc status=none
	! $(BIN)/shardtools verify demo/damaged
	@printf '\n== 8. Look at a dataset and its first samples\n'
	$(BIN)/shardtools inspect demo/images-wds --head 2
	$(BIN)/shardtools inspect demo/docs-mds --head 2
	@printf '\nDone. The shards are in demo/; `$(BIN)/shardtools --help` says what else there is.\n'

demo/images-mds/shardtools.manifest:
	$(MAKE) demo

demo-bench: $(VENV)/.train demo/images-mds/shardtools.manifest
	@printf '\n== The same 2,000 pairs as small files, by webdataset and by StreamingDataset, in turn; two to three minutes\n'
	$(BIN)/shardtools bench demo/images demo/images-wds demo/images-mds --blocks 6 --min-seconds 3 --report demo/bench
	@printf '\nThe report is demo/bench/report.html, its data demo/bench/bench.json.\n'

test: $(VENV)/.tests
	$(BIN)/python -m pytest -m 'not slow'

test-slow: $(VENV)/.tests
	$(BIN)/python -m pytest -m slow

check: $(VENV)/.tests
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/mypy --strict scripts/*.py
	$(MAKE) test

bench-peers: $(VENV)/.tests
	$(BIN)/python scripts/bench_peers.py $(BENCH)

clean:
	rm -rf demo build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find $(SOURCES) -name __pycache__ -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV) *.egg-info
