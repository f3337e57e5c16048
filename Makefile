# One command equals CI: .ci/run, which is `make lint`, `scripts/checks.sh quick` and `make test`.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help test lint checks alerts examples demo bench bench-webhooks damage soak soak-kafka proofs proofs-kafka storm-kafka figures-kafka bench-kafka bench-letters bench-push lab-alert lab-board mutants deny tools kafka-up kafka-down clean

help: ## list all targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: ## install what the tests need, start PostgreSQL and Kafka, run all tests and all examples
	@scripts/test.sh

lint: ## formatting, clippy with warnings as errors, the README's example against its file, links between pages
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --all-features --locked -- -D warnings
	@scripts/readme.sh
	@scripts/links.sh
	@! git grep -nE '^(<{7}|>{7}) '

checks: ## each set of features by itself, documentation with warnings as errors, packages, licences and duplicates of dependencies
	@scripts/checks.sh

alerts: ## check the alert rules and run their unit tests with promtool
	@scripts/alerts.sh

examples: ## run every example that needs no arguments (the ledger's needs scripts/postgres.sh start)
	@scripts/examples.sh

demo: ## producer, flaky downstream, pipeline, API and page in one process; ^C ends it with an audit
	@echo "building redrive without Kafka (the first time takes some minutes) …"
	@cargo build --quiet --locked -p redrive-cli --no-default-features --profile demo
	@target/demo/redrive demo $(ARGS)

bench: ## benchmark the embedded engine on the common workload, and webhooks against a bare client; release build
	cargo run --release --locked -p redrive-lab --bin redrive-bench -- $(ARGS)
	cargo run --release --locked -p redrive-sinks --example webhook_rate
	cargo run --release --locked -p redrive-cli --example http_rate

bench-webhooks: ## the rate of webhooks alone: a bare client, unsigned and signed by turns; release build
	cargo run --release --locked -p redrive-sinks --example webhook_rate -- $(ARGS)

bench-push: ## benchmark the push sinks against bare clients, by turns; release build
	cargo run --release --locked -p redrive-sinks --example bench_push -- $(ARGS)

bench-kafka: ## benchmark the Kafka engine on the common workload against a bare client, on its own broker; release build
	@scripts/bench-kafka.sh $(ARGS)

bench-letters: ## groups, pages, counts, start, memory and disk at 10k, 1M and 10M dead letters, on both engines; release build
	@scripts/bench-letters.sh $(ARGS)

damage: ## damage every file of a store more than 4,000 times, with and without the index; prints the results
	REDRIVE_DAMAGE=$${REDRIVE_DAMAGE:-1000} cargo test --release --locked -p redrive-faults --test faults_damage -- --nocapture --test-threads 1

soak: ## the tests with many more seeds and kills; takes hours, stop it when you like
	REDRIVE_SEEDS=$${REDRIVE_SEEDS:-200000} \
	REDRIVE_SIM_SEEDS=$${REDRIVE_SIM_SEEDS:-200000} \
	REDRIVE_DIR_SEEDS=$${REDRIVE_DIR_SEEDS:-1000} \
	REDRIVE_KILLS=$${REDRIVE_KILLS:-1000} \
	REDRIVE_CUTS=$${REDRIVE_CUTS:-500} \
	REDRIVE_INDEX_ROUNDS=$${REDRIVE_INDEX_ROUNDS:-1000} \
	REDRIVE_DAMAGE=$${REDRIVE_DAMAGE:-10000} \
	REDRIVE_FAILURES=$${REDRIVE_FAILURES:-1000000} \
	REDRIVE_SYSCALLS=$${REDRIVE_SYSCALLS:-long} \
	REDRIVE_ATTACK_CLIENTS=$${REDRIVE_ATTACK_CLIENTS:-4200} \
	REDRIVE_ATTACK_SECONDS=$${REDRIVE_ATTACK_SECONDS:-600} \
	REDRIVE_TEST_PROFILE=release REDRIVE_TEST_TIMEOUT=24h scripts/test.sh

soak-kafka: ## 20 minutes at 50k/s with kills, audited by id
	@scripts/bench-kafka.sh --soak --seconds $${REDRIVE_SOAK_SECONDS:-1200} --rate $${REDRIVE_SOAK_RATE:-50000} $(ARGS)

proofs: ## 300 kills from outside, with the binary and with in-process handlers, and poison pills identified after three crashes
	REDRIVE_OUTSIDE_KILLS=$${REDRIVE_OUTSIDE_KILLS:-300} \
	cargo test --locked -p redrive-cli --test kills_from_outside -- --nocapture kills_under_load
	REDRIVE_OUTSIDE_KILLS=$${REDRIVE_OUTSIDE_KILLS:-300} \
	cargo test --locked -p redrive-faults --test faults_outside -- --nocapture
	cargo test --locked -p redrive-faults --test faults_pill

proofs-kafka: storm-kafka ## the three-broker storm, and the proofs on Kafka with many more kills and rolling restarts
	@scripts/kafka.sh up >/dev/null
	REDRIVE_KAFKA_KILLS=$${REDRIVE_KAFKA_KILLS:-300} \
	REDRIVE_KAFKA_STORM_SECONDS=$${REDRIVE_KAFKA_STORM_SECONDS:-600} \
	REDRIVE_KAFKA_ROLLS=$${REDRIVE_KAFKA_ROLLS:-20} \
	cargo test --locked -p redrive-kafka-faults -- --nocapture
	REDRIVE_KAFKA_REPLAY_KILLS=$${REDRIVE_KAFKA_REPLAY_KILLS:-20} \
	cargo test --locked -p redrive-cli --test group_kafka -- --nocapture a_job_whose_member_is_killed
	@scripts/kafka.sh down

storm-kafka: ## three brokers, three processors, 100,000 records and some 28 faults, audited by id; REDRIVE_SEED chooses the faults
	@scripts/storm.sh --seed $${REDRIVE_SEED:-13} --records $${REDRIVE_STORM_RECORDS:-100000} $(ARGS)

figures-kafka: ## how soon deliveries go on after kill -9 and after the loss of a broker, by session timeout; release build
	@REDRIVE_STORM_PROFILE=release scripts/storm.sh --figures --sessions 10,20,45 $(ARGS)

lab-alert: ## poison grows until the shipped alerts fire in a real Prometheus; takes about seven minutes
	cargo build --release --locked -p redrive-cli
	@scripts/burn-rate.sh

lab-board: ## one poison message on the board: its queries through a real Prometheus, drawn; takes five minutes
	cargo build --release --locked -p redrive-cli
	@scripts/board.sh $(ARGS)

mutants: ## change the code of redrive-core line by line and see whether a test notices
	@command -v cargo-mutants >/dev/null || cargo install cargo-mutants --locked
	cargo mutants -p redrive-core

deny: ## licences, advisories, duplicates and sources of the dependencies
	@command -v cargo-deny >/dev/null || cargo install cargo-deny --locked
	cargo deny --all-features check

tools: ## install the system packages the tests need, only those that are missing
	@scripts/tools.sh

kafka-up: ## start a private Apache Kafka on loopback for tests and experiments; prints its address
	@scripts/kafka.sh up

kafka-down: ## stop it and remove its data
	@scripts/kafka.sh down

clean: ## stop the test servers and remove all build output
	-@scripts/postgres.sh stop
	-@scripts/kafka.sh down
	cargo clean
