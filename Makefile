# Sandgate. `make help` lists the targets, `make run` starts it, `make test` checks it.

PREFIX     ?= /usr/local
SYSCONFDIR ?= /etc
PORT       ?= 8080
RUN_DIR    ?= run
SECS       ?= 60
CYCLES     ?= 1000
Q          := $(if $(V),,@)
comma      := ,
ifeq ($(origin CC),default)
CC := gcc
endif

# Every variant has its own folder: build, build/san, build/clang, build/clang/san, build/fuzz.
BUILD := build$(if $(findstring clang,$(CC)),/clang)$(if $(SAN),/san)
ifdef FUZZ
override CC := clang
BUILD := build/fuzz
endif
OBJ   := $(BUILD)/obj

CFLAGS ?= -O2 -g
WARN   := -Wall -Wextra -Werror -Wshadow -Wconversion -Wno-sign-conversion -Wstrict-prototypes \
          -Wmissing-prototypes -Wformat=2 -Wvla
HARDEN := -fstack-protector-strong -fPIE
ifneq ($(SAN)$(FUZZ),)
HARDEN += -fsanitize=address,undefined$(if $(FUZZ),$(comma)fuzzer-no-link) -fno-sanitize-recover=all \
          -fno-omit-frame-pointer
else
HARDEN += -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
endif
COMPILE = $(CC) -std=gnu11 -D_GNU_SOURCE -Isrc $(WARN) $(CFLAGS) $(HARDEN) $(CPPFLAGS) -MMD -MP
LINK    = $(CC) $(CFLAGS) $(HARDEN) -pie -Wl,-z,relro,-z,now -Wl,--as-needed $(LDFLAGS)

# Not ":=": pkg-config may be installed only by `make deps`.
ENGINE_PKGS   := libmicrohttpd json-c libseccomp libcrypto zlib
ENGINE_CFLAGS  = $(shell pkg-config --cflags $(ENGINE_PKGS))
ENGINE_LIBS    = $(shell pkg-config --libs $(ENGINE_PKGS))
E2B_PKGS      := libcurl json-c libcrypto
E2B_CFLAGS     = $(shell pkg-config --cflags $(E2B_PKGS))
E2B_LIBS       = $(shell pkg-config --libs $(E2B_PKGS))
E2B_TEST_LIBS  = $(E2B_LIBS) $(shell pkg-config --libs libssl) -pthread
STORE_PKGS    := sqlite3 libcrypto
STORE_CFLAGS   = $(shell pkg-config --cflags $(STORE_PKGS))
STORE_LIBS     = $(shell pkg-config --libs $(STORE_PKGS))
WEB_LIBS       = $(shell pkg-config --libs fcgi)
CMOCKA_LIBS    = $(shell pkg-config --libs cmocka)

objects  = $(patsubst src/%.c,$(OBJ)/%.o,$(wildcard $(1)))
LIB     := $(BUILD)/libsandgate.a
PROGS   := $(addprefix $(BUILD)/,sandgate sandgatectl sandgate-cleanup sandgate-engine sandgate-agent \
             sandgate-zygote.so)
SYSTEMD := $(patsubst %,$(BUILD)/%,$(wildcard systemd/*))
UNITS   := $(patsubst tests/unit/%.c,$(BUILD)/tests/%,$(wildcard tests/unit/test_*.c))

# A unit test is linked with the archive of wire and base. One that needs more names it here.
test_template_OBJS := engine/template.o
test_loop_OBJS     := engine/loop.o
test_logs_OBJS     := engine/logs.o
test_pty_OBJS      := engine/pty.o
test_cgroup_OBJS   := engine/cgroup.o engine/hierarchy.o
test_netrules_OBJS := engine/netrules.o
test_fields_OBJS   := engine/answer.o engine/http.o engine/loop.o
test_prefork_OBJS  := $(patsubst src/%.c,%.o,$(wildcard src/web/*.c))
test_e2b_OBJS      := $(patsubst src/%.c,%.o,$(wildcard src/e2b/*.c))
test_e2b_faults_OBJS := $(test_e2b_OBJS)
test_e2b_live_OBJS   := $(test_e2b_OBJS)
test_e2b_tls_OBJS    := $(test_e2b_OBJS)
test_e2b_watch_live_OBJS := $(test_e2b_OBJS)
test_store_OBJS    := $(patsubst src/%.c,%.o,$(wildcard src/store/*.c))
test_store_sandboxes_OBJS := $(test_store_OBJS)
test_store_runs_OBJS      := $(test_store_OBJS)
test_store_race_OBJS      := $(test_store_OBJS)
test_store_passes_OBJS     := $(test_store_OBJS)
test_clockjump_OBJS        := core/clockjump.o
session_OBJS               := $(addprefix core/,session.o ledger.o deadman.o expiry.o initial.o packages.o)
test_session_live_OBJS    := $(session_OBJS) $(test_store_OBJS) $(test_e2b_OBJS)
test_eventlog_OBJS         := core/eventlog.o
test_result_OBJS           := core/result.o core/report.o core/eventlog.o $(test_store_OBJS)
test_packages_OBJS         := core/packages.o
test_run_live_OBJS        := $(addprefix core/,changes.o run.o run_calls.o record.o report.o result.o eventlog.o) $(session_OBJS) $(test_store_OBJS) $(test_e2b_OBJS)
test_install_live_OBJS    := core/install.o $(test_run_live_OBJS)
test_routes_OBJS          := $(foreach layer,api core store e2b web,$(patsubst src/%.c,%.o,$(wildcard src/$(layer)/*.c)))
test_upload_live_OBJS     := core/upload.o $(session_OBJS) $(test_store_OBJS) $(test_e2b_OBJS)

# The same for the fuzz targets. Each stands in for what its objects call beyond these.
FUZZERS := $(patsubst tests/fuzz/%.c,$(BUILD)/%,$(wildcard tests/fuzz/*.c))
fuzz_agent_OBJS     := engine/agent.o engine/loop.o
fuzz_answers_OBJS   := $(addprefix e2b/,address.o answer.o bodies.o listing.o remote_files.o)
fuzz_body_OBJS      := api/body.o
fuzz_envelopes_OBJS := $(addprefix e2b/,answer.o backlog.o code_stream.o command_stream.o)
fuzz_fields_OBJS    := $(test_fields_OBJS)
fuzz_listing_OBJS   := engine/listing.o engine/template.o
fuzz_logs_OBJS      := engine/logs.o engine/logview.o
fuzz_ndjson_OBJS    := $(addprefix e2b/,answer.o backlog.o code_stream.o)
fuzz_packages_OBJS  := core/packages.o
fuzz_template_OBJS  := engine/template.o

# Builds happen under a lock, so that two makes may run in one checkout.
JOBS   = $(if $(filter -j% --jobserver%,$(MAKEFLAGS)),,-j$(shell nproc))
LOCKED = mkdir -p build && flock build/.lock $(MAKE) --no-print-directory $(JOBS)
LOCAL  = PORT='$(PORT)' RUN_DIR='$(RUN_DIR)' BUILD='$(BUILD)' tools/local

INSTALL = DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' SYSCONFDIR='$(SYSCONFDIR)' BUILD='$(BUILD)' PROGS='$(PROGS)' tools/install

.DELETE_ON_ERROR:
.PHONY: all deps run up down test test-cloud fuzz soak bench lint install uninstall clean help programs units units-systemd put \
        fuzzers

all: ## build the programs (CC=clang; SAN=1 with sanitizers; V=1 shows the commands)
	+@$(LOCKED) programs

deps: ## install what is missing for building, running and testing
	@tools/deps test

run: ## start everything on PORT (8080), state in RUN_DIR (run), until Ctrl-C
	@tools/deps run
	+@$(LOCKED) programs
	@$(LOCAL) run

up: ## the same in the background; returns when it is ready
	@tools/deps run
	+@$(LOCKED) programs
	@$(LOCAL) up

down: ## stop what `make up` started
	@$(LOCAL) down

test: ## run all tests (SAN=1: on the sanitized build, T=pattern: only what matches)
	@tools/deps test
	@CC='$(CC)' SAN='$(SAN)' T='$(T)' tests/run

test-cloud: ## the contract against E2B itself; needs E2B_API_KEY and makes a few sandboxes there
	@tools/deps test
	+@$(LOCKED) programs
	@SANDGATE_BUILD='$(BUILD)' tests/cloud

fuzz: ## look for inputs that break a decoder, SECS (60) seconds each (T=path: only that one)
	@tools/deps test
	+@$(LOCKED) FUZZ=1 fuzzers
	@tests/fuzz/run '$(SECS)' $(T)

soak: ## CYCLES (1000) lives of sandboxes in one engine; fails when they leave something behind
	@tools/deps test
	+@$(LOCKED) programs
	@SANDGATE_BUILD='$(BUILD)' "$$(tools/deps node)" tests/soak/run.mjs '$(CYCLES)'

bench: ## measure, side by side (BENCH=--markdown, BENCH=status: only that group)
	@tools/deps bench
	+@$(LOCKED) programs
	@SANDGATE_BUILD='$(BUILD)' "$$(tools/deps node)" tests/bench/run.mjs $(BENCH)

lint: all ## check layers, banned functions, formatting and names
	@SANDGATE_BUILD='$(BUILD)' tests/lint

install: ## install below PREFIX (/usr/local), settings in SYSCONFDIR (/etc); DESTDIR stands before both
	+@$(LOCKED) put

uninstall: ## remove what `make install` put there, but no settings, keys or state
	@$(INSTALL) remove

clean: ## remove what was built
	rm -rf build tests/node_modules tests/bench/node_modules tests/older/node_modules

help: ## show this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/\1\t\2/p' Makefile | expand -t 10

# What follows is called under the lock.

programs: $(PROGS) units-systemd
	@:
units-systemd: $(SYSTEMD)
	@:
units: $(UNITS)
	@:
put: programs
	@$(INSTALL) put
fuzzers: $(FUZZERS)
	@:

$(BUILD)/sandgate-engine: $(call objects,src/engine.c src/engine/*.c) $(LIB)
	@echo 'LINK $@'
	$(Q)$(LINK) -o $@ $^ $(ENGINE_LIBS)

$(BUILD)/sandgate-agent: $(call objects,src/agent.c src/agent/*.c) $(LIB)
	@echo 'LINK $@'
	$(Q)$(LINK) -o $@ $^

# Loaded by the machine's Python, which has no sanitizer in it.
ZYGOTE_SRC := $(wildcard src/zygote/*.c) src/base/confine.c src/base/packet.c src/wire/agentmsg.c
ZYGOTE_HARDEN := -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2

$(BUILD)/sandgate-zygote.so: $(ZYGOTE_SRC) src/wire/zygotemsg.h src/wire/agentmsg.h src/base/confine.h src/base/packet.h Makefile
	@mkdir -p $(@D)
	@echo 'LINK $@'
	$(Q)$(CC) -std=gnu11 -D_GNU_SOURCE -Isrc $(WARN) $(CFLAGS) $(ZYGOTE_HARDEN) $(CPPFLAGS) -fPIC -shared \
	        -fvisibility=hidden -Wl,-z,relro,-z,now $(LDFLAGS) -o $@ $(ZYGOTE_SRC)

# sandgatectl prints what the route table says, so it has the table and the handlers.
GATEWAY_OBJS := $(call objects,$(foreach layer,api core store e2b web,src/$(layer)/*.c))
GATEWAY_LIBS  = $(STORE_LIBS) $(E2B_LIBS) $(WEB_LIBS) $(shell pkg-config --libs zlib)

$(BUILD)/sandgate: $(OBJ)/gateway.o $(GATEWAY_OBJS) $(LIB)
	@echo 'LINK $@'
	$(Q)$(LINK) -o $@ $^ $(GATEWAY_LIBS)

$(BUILD)/sandgatectl: $(call objects,src/ctl.c src/ctl/*.c) $(GATEWAY_OBJS) $(LIB)
	@echo 'LINK $@'
	$(Q)$(LINK) -o $@ $^ $(GATEWAY_LIBS)

CLEANUP_OBJS := $(call objects,$(foreach layer,core store e2b,src/$(layer)/*.c))

$(BUILD)/sandgate-cleanup: $(OBJ)/cleanup.o $(CLEANUP_OBJS) $(LIB)
	@echo 'LINK $@'
	$(Q)$(LINK) -o $@ $^ $(STORE_LIBS) $(E2B_LIBS) $(shell pkg-config --libs zlib)

# Made anew each time: PREFIX may be another.
$(SYSTEMD): $(BUILD)/%: % FORCE
	@mkdir -p $(@D)
	$(Q)sed -e 's|@BINDIR@|$(PREFIX)/bin|g' -e 's|@SYSCONFDIR@|$(SYSCONFDIR)|g' $< >$@
FORCE:

# Made anew each time: an archive keeps members whose source is gone.
$(LIB): $(call objects,src/wire/*.c src/base/*.c)
	@rm -f $@
	@echo 'AR   $@'
	$(Q)$(AR) rcs $@ $^

$(OBJ)/%.o: src/%.c Makefile
	@mkdir -p $(@D)
	@echo 'CC   $<'
	$(Q)$(COMPILE) -c -o $@ $<

$(OBJ)/engine.o $(OBJ)/engine/%.o: COMPILE += $(ENGINE_CFLAGS)
$(OBJ)/e2b/%.o: COMPILE += $(E2B_CFLAGS)
$(OBJ)/engine/driver.o: COMPILE += -Wa,-I.
$(OBJ)/engine/driver.o: $(addprefix src/engine/,kernel.py charts.py kernel.js)
$(OBJ)/store/%.o: COMPILE += $(STORE_CFLAGS)
$(OBJ)/store/migrate.o: COMPILE += -Wa,-I.
$(OBJ)/store/migrate.o: $(wildcard sql/*.sql)

.SECONDEXPANSION:
$(UNITS): $(BUILD)/tests/%: tests/unit/%.c Makefile $(LIB) $$(addprefix $$(OBJ)/,$$($$*_OBJS))
	@mkdir -p $(@D)
	@echo 'CC   $<'
	$(Q)$(COMPILE) -MT $@ -MF $@.d $(ENGINE_CFLAGS) $(STORE_CFLAGS) -c -o $@.o $<
	$(Q)$(LINK) -o $@ $@.o $(addprefix $(OBJ)/,$($*_OBJS)) $(LIB) $(ENGINE_LIBS) \
	        $(if $(findstring e2b/,$($*_OBJS)),$(E2B_TEST_LIBS)) \
	        $(if $(findstring store/,$($*_OBJS)),$(STORE_LIBS)) \
	        $(if $(findstring web/,$($*_OBJS)),$(WEB_LIBS)) $(CMOCKA_LIBS)

ifdef FUZZ
$(FUZZERS): $(BUILD)/%: tests/fuzz/%.c Makefile $(LIB) $$(addprefix $$(OBJ)/,$$(fuzz_$$*_OBJS))
	@mkdir -p $(OBJ)/fuzz
	@echo 'CC   $<'
	$(Q)$(COMPILE) -MT $@ -MF $(OBJ)/fuzz/$*.d $(ENGINE_CFLAGS) -c -o $(OBJ)/fuzz/$*.o $<
	$(Q)$(LINK) -fsanitize=fuzzer -o $@ $(OBJ)/fuzz/$*.o $(addprefix $(OBJ)/,$(fuzz_$*_OBJS)) $(LIB) $(ENGINE_LIBS)
endif

-include $(shell find $(OBJ) $(BUILD)/tests -name '*.d' 2>/dev/null)
