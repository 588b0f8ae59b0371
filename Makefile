# Two commands do everything on a fresh machine with a Rust toolchain:
#   make demo   the four-drive job of the posted-MSI work, remapped and posted, beside the published figures
#   make test   the tests, in a quarter of an hour on two cores once everything is built
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup build judges judges-arm64 demo soak test test-all bench fuzz miri lint clean

CAMPANILE := cargo run --quiet --release --locked --package campanile --
OUT := out
# More options for the demo, for example DEMO_FLAGS="--seeds 1".
DEMO_FLAGS :=

help:
	@echo "make demo      run the four-drive job, remapped and posted; writes $(OUT)/demo.html and $(OUT)/demo.pftrace"
	@echo "make test      the quick tests (a quarter of an hour); prints a budget for each part"
	@echo "make test-all  those and the long ones"
	@echo "make judges    build QEMU with posted interrupts, and Linux with posted MSI (20 minutes of CPU time; kept)"
	@echo "make judges-arm64  build both for arm64: Linux beside the case raise, QEMU for several interrupts (25 minutes of CPU time; kept)"
	@echo "make soak      search random histories for half an hour; writes $(OUT)/soak.json"
	@echo "make bench     measure the engine, the server and the demultiplexer on this machine"
	@echo "make fuzz      fuzz every target in turn, SECONDS=60 each, or TARGET=name alone (cargo-fuzz, nightly)"
	@echo "make miri      the modules with unsafe code under Miri (nightly)"
	@echo "make lint      formatting, lints, rules of the house"

setup:
	@scripts/setup

build: setup
	cargo build --release --locked --package campanile

demo: build
	@mkdir -p $(OUT)
	$(CAMPANILE) run scenarios/emr-4-drives.toml $(DEMO_FLAGS) --html $(OUT)/demo.html --trace $(OUT)/demo.pftrace

test: setup
	scripts/test

test-all: setup
	scripts/test --all

judges:
	@scripts/judges
	@echo "left out: both for arm64 (make judges-arm64)"

judges-arm64:
	@scripts/judges linux-arm64 qemu-arm64

soak: build
	@mkdir -p $(OUT)
	$(CAMPANILE) check --minutes 30 --json $(OUT)/soak.json

bench: build
	$(CAMPANILE) bench

# One target and its seconds: make fuzz TARGET=nvme SECONDS=600
TARGET :=
SECONDS := 60
fuzz: setup
	scripts/fuzz "$(TARGET)" $(SECONDS)

miri: setup
	scripts/miri

lint: setup
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- --deny warnings
	cargo clippy --package campanile --test blind_servers --locked -- --deny warnings
	cargo xtask tidy

clean:
	cargo clean
	rm -rf $(OUT)
