# make test is all that a contributor needs; the other targets are what .ci/run
# runs besides. scripts/ holds the logic.

.PHONY: help test quick all test-loaded test-containers proof schedules bench bench-quick faults faults-short galera planted peers mutants matrix matrix-turn explore first-paint page screenshots telemetry setup release archives rehearse-release check fmt fmt-check words vet lint tidy-check cross

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1	/p' $(MAKEFILE_LIST) | expand -t 18

test: ## run all tests on all databases; as root on Debian or Ubuntu, install what is missing
	@scripts/test.sh

quick: ## the engine, the drivers and unique mode in brief, on SQLite and Postgres, below a minute and a half
	@scripts/test.sh quick

all: check ## everything: what make check looks at, all tests with the race detector, the faults in short
	@scripts/test.sh all
	@$(MAKE) faults-short

test-loaded: ## make test while something else takes 40 % of each processor
	@go run ./scripts/load -percent 40 -for 60m scripts/test.sh

test-containers: ## the same on Postgres and MySQL in containers, see containers/README.md
	@GOWORK=off go build -C containers -o ../bin/containers . && exec bin/containers $(or $(RUN),scripts/test.sh)

bench: ## measure beside other locks, about an hour, see bench/README.md
	@bench/setup.sh
	@cd bench && GOWORK=off go run . $(ARGS)

bench-quick: ## the same in short, below ten minutes
	@bench/setup.sh
	@cd bench && GOWORK=off go run . -quick $(ARGS)

faults: ## do harm to clients, networks and servers and check what the locks do, more than three hours, see faults/README.md
	@faults/setup.sh
	@GOWORK=off go build -C faults -o ../bin/faults . && exec bin/faults -report faults/faults-report.json $(ARGS)

faults-short: ## the cells of it that say most, about five minutes
	@faults/setup.sh
	@GOWORK=off go build -C faults -o ../bin/faults . && FAULT_SECONDS=$${FAULT_SECONDS:-8} exec bin/faults -short -parallel 2 -report faults/faults-report.json $(ARGS)

galera: ## test and do harm to a Galera cluster of three nodes, a quarter of an hour, see faults/README.md
	@faults/setup.sh galera
	@cd faults && GOWORK=off go test -count=1 -tags galera -v ./galera
	@GOWORK=off go build -C faults -o ../bin/faults . && FAULT_SECONDS=$${FAULT_SECONDS:-60} exec bin/faults -database galera -nemesis none,client-kill,client-pause,net-lost-reply,node-kill,node-isolate,node-freeze -mode unique -report faults/galera-report.json $(ARGS)

planted: ## build the library with one known bug at a time and show what notices it, and that nothing does without the bug, more than ten minutes
	@faults/setup.sh
	@cd faults && GOWORK=off go run ./planted $(ARGS)

peers: ## the same harm to other locks, in one table beside ours, about ten minutes, see faults/README.md
	@faults/setup.sh peers
	@GOWORK=off go build -C faults -o ../bin/peers ./peers && exec bin/peers -report faults/peers-report.json $(ARGS)

mutants: ## change the library in small ways, one at a time, and show which test notices, hours, see faults/README.md
	@scripts/setup.sh
	@GOWORK=off go build -C faults -o ../bin/mutants ./mutants && exec bin/mutants $(ARGS)

matrix: ## run the conformance suite on other versions of the engines and through other drivers, hours, see matrix/README.md
	@GOWORK=off go build -C matrix -o ../bin/matrix . && exec bin/matrix $(ARGS)

matrix-turn: ## one cell of it in brief, which the commit chooses, below three minutes
	@GOWORK=off go build -C matrix -o ../bin/matrix . && exec bin/matrix -rotate -brief $(ARGS)

proof: ## have z3 prove the rules of a name for any number of clients, and show what breaks the proof, half a minute
	@SQLLOCK_REQUIRE=z3 scripts/setup.sh
	@SQLLOCK_REQUIRE=z3 go test -count=1 -v ./internal/claim/proof
	@go test -count=1 -v -run 'OfTheProof$$' ./internal/claim

schedules: ## run 100,000 schedules of the engine with faults, each decided by its seed, about six minutes
	@go run ./scripts/schedules -count $(or $(COUNT),100000) -first $(or $(FIRST),1) $(ARGS)

explore: ## explore many more worlds of the rules of a name than make test does, plant all bugs, compare each database for long, hours
	@scripts/explore.sh

telemetry: ## check the dashboard and the alerts of otel with a real Prometheus, a minute
	@otel/setup.sh
	@cd otel && GOWORK=off go test -count=1 -tags prometheus -run 'Promtool|EachQuery' .

first-paint: ## check when a headless Chromium paints the page of web over 10,000 held names, a second at most, half a minute
	@go test -count=1 -tags chromium -run FirstPaint -v ./web

page: ## check what the page of web does in a headless Chromium, half a minute
	@go test -count=1 -tags chromium -run InABrowser ./web

screenshots: ## take the pictures of docs/web.md anew, in a headless Chromium
	@scripts/screenshots.sh

setup: ## install, or name, what the tests need
	@scripts/setup.sh

release: ## make a release of all modules, VERSION=v0.1.0, see docs/releasing.md
	@GOWORK=off go -C tools run ./release $(VERSION)

archives: ## make the archives of the command of a release that is checked out, VERSION=v0.1.0
	@GOWORK=off go -C tools run ./release -archives $(VERSION)

rehearse-release: ## release a copy, and use every module of it from outside, in half a minute
	@GOWORK=off go -C tools run ./release -rehearse

check: fmt-check words vet lint tidy-check cross ## everything but the tests

fmt: ## format the code
	gofmt -w .

fmt-check:
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then \
		echo "not formatted, run make fmt:"; echo "$$unformatted"; exit 1; fi

words: ## find names that are not in the glossary
	@GOWORK=off go -C tools run ./words $(ARGS)

vet: # the second time with the tests that need a Prometheus, a Chromium, another driver or a Galera cluster
	@scripts/each.sh go vet ./...
	@cd otel && GOWORK=off go vet -tags prometheus ./...
	@go vet -tags chromium ./web
	@cd matrix && for driver in mattn ncruces libpq pgxpool pgbouncer; do GOWORK=off CGO_ENABLED=1 go vet -tags matrix,$$driver ./drivers || exit; done
	@cd faults && GOWORK=off go vet -tags galera ./galera

lint: ## run staticcheck, in the version that tools/go.mod says
	@scripts/each.sh go tool -modfile=$(CURDIR)/tools/go.mod staticcheck ./...

tidy-check:
	@scripts/each.sh go mod tidy -diff

# What k8s and recipes need of others takes minutes to compile, and they have no code for a system.
cross: export EXCEPT = k8s recipes
cross: ## vet for systems that the tests do not run on
	@GOOS=darwin scripts/each.sh go vet ./...
	@GOOS=windows scripts/each.sh go vet ./...
