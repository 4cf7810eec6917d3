# SPDX-License-Identifier: BSD-2-Clause
#
# Builds out of tree as well: ../configure leaves a stub that includes this
# file. Objects go to ./build, wherever make runs. V=1 shows the commands.

SRCDIR := $(patsubst %/,%,$(dir $(lastword $(MAKEFILE_LIST))))
VERSION := $(shell cat $(SRCDIR)/VERSION)
SOMAJOR := $(firstword $(subst ., ,$(VERSION)))
B := build

MAKEFLAGS += --no-builtin-rules
.SUFFIXES:
.DELETE_ON_ERROR:

.PHONY: all help lib tools tests examples check demo bench fuzz bench-sieve mutants
.PHONY: bench-files bench-prov bench-python bench-rails bench-security
.PHONY: install uninstall clean distclean check-stress check-threads check-vm
.PHONY: go python rust scale simulate simulate-fences stress wheel with-tests
.PHONY: abi-record check-abi check-docs check-headers check-layers check-man check-prose
.PHONY: check-structure check-style check-mutants
.PHONY: stats FORCE

all: lib tools tests examples man

ifeq ($(filter clean distclean help,$(MAKECMDGOALS)),)
include config.mak
endif

# Runs again with the same arguments when the script is newer.
config.mak: $(SRCDIR)/configure $(SRCDIR)/scripts/configure_deps.sh \
		$(SRCDIR)/VERSION
	$(SRCDIR)/configure $(CONFIGURE_ARGS)

HEADERS = moonrail.h transfer_engine_c.h
CXX_HEADERS = moonrail.hpp
# Headers of Mooncake's C++ API. Their names are common ones, so that they are
# installed in a folder of their own.
MOONCAKE_HEADERS = $(sort $(patsubst $(SRCDIR)/api/cxx/%,%,\
	$(wildcard $(addprefix $(SRCDIR)/api/cxx/mooncake/,*.h */*.h */*/*.h))))
PC_FILES = moonrail.pc moonrail-mooncake.pc
MODULES = util topo meta prov/rail prov/local prov/nvmeof prov/gpu \
	  prov/staging prov/moonrail api fabtests fabtests/sim tools scripts
ifeq ($(WITH_PROV),no)
MODULES := $(filter-out prov/moonrail,$(MODULES))
endif
-include $(MODULES:%=$(SRCDIR)/%/module.mk)

# --- how to compile ---------------------------------------------------------

Q = @
say = @printf '  %-8s%s\n' '$(1)' '$(2)'
ifeq ($(V),1)
Q =
say = @:
endif

WARN_CFLAGS = -Wall -Wextra -Wstrict-prototypes -Wmissing-prototypes \
	      -Wold-style-definition
BASE_CFLAGS = -std=c11 -D_GNU_SOURCE -include config.h -I$(SRCDIR) \
	      -I$(SRCDIR)/api -fPIC -fvisibility=hidden -pthread \
	      $(FABRIC_CFLAGS) $(WARN_CFLAGS) $(EXTRA_CFLAGS)
LIBS = $(FABRIC_LIBS) -lnuma -lcjson -lnettle $(OPTIONAL_LIBS)
# $(1): libraries. The linker records only those that are needed.
link_libs = -pthread -Wl,--as-needed $(1)
RPATH = -Wl,-rpath,'$$ORIGIN/../lib'

# This file changes when a command line would change; all objects depend on it.
FLAGS_TEXT = $(CC) $(BASE_CFLAGS) $(CFLAGS) $(LDFLAGS) $(EXTRA_LDFLAGS) $(LIBS)
$(B)/flags: FORCE
	@mkdir -p $(@D)
	@printf '%s\n' '$(subst ','\'',$(FLAGS_TEXT))' | cmp -s - $@ || \
		printf '%s\n' '$(subst ','\'',$(FLAGS_TEXT))' >$@

$(B)/%.o: $(SRCDIR)/%.c $(B)/flags
	@mkdir -p $(@D)
	$(call say,CC,$*.c)
	$(Q)$(CC) $(BASE_CFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

# --- library ----------------------------------------------------------------

LIB_OBJS = $(SRCS:%.c=$(B)/%.o)
SONAME = libmoonrail.so.$(SOMAJOR)
REAL_SO = libmoonrail.so.$(VERSION)
MAP = $(SRCDIR)/api/moonrail.map
# With clang, the symbols of a sanitizer stay undefined in a shared library.
ifneq ($(WITH_SANITIZE),yes)
DEFS_LDFLAGS = -Wl,-z,defs
endif

SO = $(B)/lib/libmoonrail.so
ifneq ($(WITH_PROV),no)
PROV_SO = $(B)/lib/libfabric/libmoonrail-fi.so
endif
CMAKE_FILES = $(B)/lib/moonrailConfig.cmake $(B)/lib/moonrailConfigVersion.cmake
lib: $(SO) $(B)/lib/libmoonrail.a $(PC_FILES:%=$(B)/lib/%) $(CMAKE_FILES) \
     $(PROV_SO)

# A thread may outlive the last engine, for example while it resolves a host name.
# The library therefore stays mapped after dlclose.
$(B)/lib/$(REAL_SO): $(LIB_OBJS) $(MAP) $(B)/flags
	@mkdir -p $(@D)
	$(call say,LINK,$(REAL_SO))
	$(Q)$(CC) -shared $(CFLAGS) $(LDFLAGS) $(EXTRA_LDFLAGS) \
		-Wl,-soname,$(SONAME) -Wl,--version-script=$(MAP) \
		-Wl,-z,nodelete \
		$(DEFS_LDFLAGS) -o $@ $(LIB_OBJS) $(call link_libs,$(LIBS))

$(SO): $(B)/lib/$(REAL_SO)
	@ln -sf $(REAL_SO) $(B)/lib/$(SONAME)
	@ln -sf $(SONAME) $(B)/lib/libtransfer_engine.so
	@ln -sf $(SONAME) $@

# The libfabric provider does not depend on libmoonrail.
PROV_OBJS = $(PROV_SRCS:%.c=$(B)/%.o)
PROV_ALL = $(PROV_OBJS) \
	   $(filter $(B)/util/% $(B)/topo/% $(B)/prov/rail/%,$(LIB_OBJS))
PROV_MAP = $(SRCDIR)/prov/moonrail/moonrail-fi.map
# If a program ends without closing its domains, libfabric unloads its providers
# while their threads are still running.
$(PROV_SO): $(PROV_ALL) $(PROV_MAP) $(B)/flags
	@mkdir -p $(@D)
	$(call say,LINK,$(@F))
	$(Q)$(CC) -shared $(CFLAGS) $(LDFLAGS) $(EXTRA_LDFLAGS) \
		-Wl,-z,nodelete \
		-Wl,-soname,$(@F) -Wl,--version-script=$(PROV_MAP) \
		$(DEFS_LDFLAGS) -o $@ $(PROV_ALL) $(call link_libs,$(LIBS))

# A single object in which only the symbols of the API are global.
$(B)/lib/libmoonrail.a: $(LIB_OBJS) $(B)/flags
	@mkdir -p $(@D)
	$(call say,AR,$(@F))
	$(Q)ld -r -o $(B)/lib/moonrail.o $(LIB_OBJS)
	$(Q)objcopy --localize-hidden $(B)/lib/moonrail.o
	@rm -f $@
	$(Q)ar rcs $@ $(B)/lib/moonrail.o
	@ln -sf $(@F) $(B)/lib/libtransfer_engine.a

# The same library without hidden symbols, for unit tests; it is not installed.
$(B)/test/libmoonrail-test.a: $(LIB_OBJS) $(B)/flags
	@mkdir -p $(@D)
	$(call say,AR,$(@F))
	@rm -f $@
	$(Q)ar rcs $@ $(LIB_OBJS)

$(B)/lib/%.pc: $(SRCDIR)/api/%.pc.in config.mak $(SRCDIR)/VERSION
	@mkdir -p $(@D)
	$(Q)sed -e 's|@prefix@|$(prefix)|' -e 's|@libdir@|$(libdir)|' \
		-e 's|@includedir@|$(includedir)|' \
		-e 's|@VERSION@|$(VERSION)|' \
		-e 's|@LIBS_PRIVATE@|$(LIBS) -pthread|' $< >$@

empty :=
space := $(empty) $(empty)
INCLUDE_FROM_LIB = $(shell realpath -m --relative-to='$(libdir)' '$(includedir)')
$(CMAKE_FILES): $(B)/lib/%: $(SRCDIR)/api/cmake/%.in config.mak $(SRCDIR)/VERSION
	@mkdir -p $(@D)
	$(Q)sed -e 's|@INCLUDE_FROM_LIB@|$(INCLUDE_FROM_LIB)|' \
		-e 's|@VERSION@|$(VERSION)|' -e 's|@SOMAJOR@|$(SOMAJOR)|' \
		-e 's|@REAL_SO@|$(REAL_SO)|' -e 's|@SONAME@|$(SONAME)|' \
		-e 's|@LIBS_PRIVATE@|$(subst $(space),;,$(strip $(LIBS) -pthread))|' \
		$< >$@

# --- programs: tools, functional tests --------------------------------------

COMMON_OBJS = $(FABTESTS_COMMON_SRCS:%.c=$(B)/%.o)

# program FOLDER,NAME: from SRCS_<name>, LIBS_<name>.
define program
OBJS_$(2) := $$(SRCS_$(2):%.c=$(B)/%.o)
PROGRAM_OBJS += $$(OBJS_$(2))
$(B)/$(1)/$(2): $$(OBJS_$(2)) $$(COMMON_OBJS) $(SO) $(B)/flags
	@mkdir -p $$(@D)
	$$(call say,LINK,$(2))
	$$(Q)$$(CC) $$(CFLAGS) $$(LDFLAGS) $$(EXTRA_LDFLAGS) -o $$@ \
		$$(OBJS_$(2)) $$(COMMON_OBJS) -L$(B)/lib -lmoonrail \
		$$(RPATH) $$(call link_libs,$$(FABRIC_LINK_$(2)) $$(LIBS_$(2)))
endef
$(foreach t,$(TOOLS),$(eval $(call program,bin,$(t))))
$(foreach t,$(FUNC_TESTS) $(STRESS_TESTS) $(VM_TESTS) $(PROV_BENCH) \
	$(SECURITY_BENCH),\
	$(eval $(call program,fabtests,$(t))))
# A program that calls libfabric itself takes the same one as the library.
$(foreach t,$(TOOLS) $(FUNC_TESTS) $(PROV_BENCH),$(if $(filter -lfabric,$(LIBS_$(t))),\
	$(eval FABRIC_LINK_$(t) = $(FABRIC_LIBS))))

TOOL_FILES = $(TOOLS:%=$(B)/bin/%)
FUNC_FILES = $(FUNC_TESTS:%=$(B)/fabtests/%)
STRESS_FILES = $(STRESS_TESTS:%=$(B)/fabtests/%)
VM_FILES = $(VM_TESTS:%=$(B)/fabtests/%)
PROV_BENCH_FILES = $(PROV_BENCH:%=$(B)/fabtests/%)
SECURITY_BENCH_FILES = $(SECURITY_BENCH:%=$(B)/fabtests/%)
tools: $(TOOL_FILES)

# --- examples, compiled as a user's program would be -------------------------

EXAMPLE_FILES = $(EXAMPLES:%=$(B)/examples/%)
examples: $(EXAMPLE_FILES)

$(EXAMPLE_FILES): $(B)/examples/%: $(SRCDIR)/api/examples/%.c $(SO) \
		$(HEADERS:%=$(SRCDIR)/api/%)
	@mkdir -p $(@D)
	$(call say,EXAMPLE,$*)
	$(Q)$(CC) $(CFLAGS) $(WARN_CFLAGS) $(EXTRA_CFLAGS) $(LDFLAGS) \
		$(EXTRA_LDFLAGS) -I$(SRCDIR)/api -o $@ $< -L$(B)/lib \
		-lmoonrail $(RPATH)

# --- unit tests -------------------------------------------------------------

SUPPORT_OBJS = $(B)/util/tei_test.o

# unit_test MODULE: from TEST_SRCS_<module>.
define unit_test
TEST_OBJS_$(1) := $$(TEST_SRCS_$(1):%.c=$(B)/%.o)
TEST_OBJS += $$(TEST_OBJS_$(1))
$(B)/test/$(1)_test: $$(TEST_OBJS_$(1)) $(SUPPORT_OBJS) \
		$(B)/test/libmoonrail-test.a $(B)/flags
	@mkdir -p $$(@D)
	$$(call say,LINK,$(1)_test)
	$$(Q)$$(CC) $$(CFLAGS) $$(LDFLAGS) $$(EXTRA_LDFLAGS) -o $$@ \
		$$(TEST_OBJS_$(1)) $(SUPPORT_OBJS) \
		$(B)/test/libmoonrail-test.a \
		$$(call link_libs,$$(LIBS) $$(LIBS_$(1)_test) -lcunit)
endef
$(foreach t,$(UNIT_TESTS),$(eval $(call unit_test,$(t))))
UNIT_FILES = $(UNIT_TESTS:%=$(B)/test/%_test)

# A simulated CUDA driver and a simulated libcufile, which tests load.
CUDA_OBJS = $(CUDA_STAND_IN_SRCS:%.c=$(B)/%.o)
CUFILE_OBJS = $(CUFILE_STAND_IN_SRCS:%.c=$(B)/%.o)
STAND_IN_OBJS = $(CUDA_OBJS) $(CUFILE_OBJS)
STAND_IN = $(B)/test/libcuda.so.1 $(B)/test/libcufile.so.0
$(B)/test/libcuda.so.1: $(CUDA_OBJS)
$(B)/test/libcufile.so.0: $(CUFILE_OBJS)
$(STAND_IN): $(B)/flags
	@mkdir -p $(@D)
	$(call say,LINK,$(@F))
	$(Q)$(CC) -shared $(CFLAGS) $(LDFLAGS) $(EXTRA_LDFLAGS) \
		-Wl,-soname,$(@F) -o $@ $(filter %.o,$^) -pthread -ldl

# libfabric loads this object, whose code is in the program (-rdynamic).
SIM_FI_OBJS = $(SIM_FI_SRCS:%.c=$(B)/%.o)
SIM_FI = $(B)/test/sim/libsim-fi.so
$(SIM_FI): $(SIM_FI_OBJS) $(B)/flags
	@mkdir -p $(@D)
	$(call say,LINK,$(@F))
	$(Q)$(CC) -shared $(CFLAGS) $(LDFLAGS) $(EXTRA_LDFLAGS) \
		-Wl,-soname,$(@F) -o $@ $(SIM_FI_OBJS)

SIMULATE_OBJS = $(SIMULATE_SRCS:%.c=$(B)/%.o)
SIMULATE = $(B)/test/simulate
$(SIMULATE): $(SIMULATE_OBJS) $(B)/test/libmoonrail-test.a $(B)/flags
	@mkdir -p $(@D)
	$(call say,LINK,$(@F))
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(EXTRA_LDFLAGS) $(SIMULATE_LDFLAGS) -o $@ \
		$(SIMULATE_OBJS) $(B)/test/libmoonrail-test.a \
		$(call link_libs,$(LIBS))

SCALE_OBJS = $(SCALE_SRCS:%.c=$(B)/%.o)
SCALE_PROGRAM = $(B)/test/scale
$(SCALE_PROGRAM): $(SCALE_OBJS) $(B)/test/libmoonrail-test.a $(B)/flags
	@mkdir -p $(@D)
	$(call say,LINK,$(@F))
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(EXTRA_LDFLAGS) -rdynamic \
		-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=free \
		-o $@ $(SCALE_OBJS) $(B)/test/libmoonrail-test.a \
		$(call link_libs,$(LIBS))

ifeq ($(WITH_TESTS),yes)
tests: $(STAND_IN) $(SIM_FI) $(SIMULATE) $(UNIT_FILES) $(FUNC_FILES) $(STRESS_FILES) $(VM_FILES) \
       $(PROV_BENCH_FILES) $(SECURITY_BENCH_FILES)
else
tests:
endif

# check T='PATTERN…' runs only the tests whose names contain a pattern.
# JOBS=N runs N tests at a time, LONG_TESTS first, and then ALONE_TESTS one by one;
# an empty JOBS= means the number of CPUs, at most 4. TIMEOUT_<name> replaces the
# limit of 300 seconds, which only ends tests that hang.
# check-threads runs the multi-threaded tests, for --enable-tsan.
timed = $(1)$(if $(TIMEOUT_$(notdir $(1))),=$(TIMEOUT_$(notdir $(1))))
SCRIPT_FILES = $(SCRIPT_TESTS:%=$(SRCDIR)/%)
CHECKS = $(UNIT_FILES) $(FUNC_FILES) $(SCRIPT_FILES)
JOBS = 1
check-threads: CHECKS = $(UNIT_FILES) \
	$(filter $(TSAN_TESTS:%=$(B)/fabtests/%),$(FUNC_FILES)) \
	$(filter $(TSAN_TESTS:%=$(SRCDIR)/%),$(SCRIPT_FILES))
$(foreach t,$(filter-out $(UNIT_TESTS:%=%_test) $(FUNC_TESTS) $(STRESS_TESTS) \
	$(notdir $(basename $(SCRIPT_TESTS) $(STRESS_SCRIPTS))),\
	$(ALONE_TESTS) $(LONG_TESTS) $(PLAIN_TESTS)),\
	$(error ALONE_TESTS, LONG_TESTS or PLAIN_TESTS: there is no test $(t)))
run_tests = BUILD='$(CURDIR)/$(B)' SRC='$(abspath $(SRCDIR))' \
	    SANITIZE='$(WITH_SANITIZE)' JOBS='$(JOBS)' \
	    ALONE='$(strip $(ALONE_TESTS))' FIRST='$(strip $(LONG_TESTS))' \
	    PLAIN='$(strip $(PLAIN_TESTS))' \
	    sh $(SRCDIR)/fabtests/scripts/run_tests.sh '$(T)'
sanitized = $(if $(filter yes,$(WITH_SANITIZE)),SRC='$(SRCDIR)' sh \
	    $(SRCDIR)/fabtests/scripts/sanitized.sh)
with-tests:
ifneq ($(WITH_TESTS),yes)
	@echo 'configured without tests: with --disable-tests, or without CUnit,' \
		'which ./configure --install-deps=test installs' >&2; exit 1
endif
check check-threads: with-tests all
	@$(run_tests) $(foreach t,$(CHECKS),$(call timed,$(t)))

# Sends random input to every parser of foreign bytes, FUZZ seconds per case.
FUZZ = 60
fuzz: all
	@for t in meta rail; do TEI_FUZZ_SECONDS='$(FUZZ)' \
		$(B)/test/$${t}_test fuzzed || exit 1; done

# Random operations and faults between processes: check-stress runs them briefly,
# stress for STRESS seconds. STRESS_ON=links uses rails that fail; STRESS_ON=bare
# uses these rails without an additional one. FT_SEED repeats a run.
STRESS = 3600
# Each of these programs uses all processors, so they run one after the other.
check-stress: override JOBS = 1
check-stress: with-tests lib $(STRESS_FILES)
	@$(run_tests) $(STRESS_FILES) \
		$(STRESS_SCRIPTS:%=$(SRCDIR)/%)
stress: lib $(STRESS_FILES)
	@for t in $(STRESS_FILES); do SRC='$(SRCDIR)' BUILD='$(B)' \
		$(sanitized) $$t $(STRESS_ON) '$(STRESS)' || exit 1; done

# Runs the data plane in a simulated world for a minute without faults, with few
# places for connections, and for a minute with two connections of each rail pair.
# Then runs the libfabric provider for SIM_PROV simulated
# seconds, engines for SIM_ENGINE seconds, and the data plane for SIM seconds, with
# faults from the SEED.
SIM = 3600
SIM_PROV = 300
SIM_ENGINE = 60
SEED = 1
SIMULATE_OPTIONS =
simulate: with-tests $(SIM_FI) $(SIMULATE)
	@$(sanitized) $(SIMULATE) --seed='$(SEED)' --sim=60 --faults=0 --places=4
	@$(sanitized) $(SIMULATE) --seed='$(SEED)' --sim=60 --nic=tcp \
		--connections=2
	@$(sanitized) $(SIMULATE) --world=fi --seed='$(SEED)' --sim='$(SIM_PROV)'
	@$(sanitized) $(SIMULATE) --world=engine --seed='$(SEED)' \
		--sim='$(SIM_ENGINE)'
	@$(sanitized) $(SIMULATE) --seed='$(SEED)' --sim='$(SIM)' \
		$(SIMULATE_OPTIONS)

# Simulates hosts whose posted slices often fail, until FENCES fences were compared
# with the model of the fence.
FENCES = 100000
FENCES_OPTIONS = --hosts=4 --rails=2 --sim=30 --rate=2000 --faults=60 --errors=500000
simulate-fences: with-tests $(SIM_FI) $(SIMULATE)
	@BUILD='$(B)' $(sanitized) sh $(SRCDIR)/fabtests/scripts/fences.sh \
		'$(FENCES)' '$(SEED)' $(FENCES_OPTIONS)

# Mutants of the peer protocol (fabtests/mutants/), which the simulator must find:
# mutants simulates all, or those whose names contain a word of MUTANTS.
# check-mutants compiles all and simulates three that are found quickly.
MUTANTS =
QUICK_MUTANTS = fence_skipped atomic_executed_twice completed_with_first_slice
run_mutants = SRC='$(SRCDIR)' BUILD='$(B)' \
	      MUTANT_CC='$(CC) $(BASE_CFLAGS) $(CFLAGS)' \
	      MUTANT_LD='$(CC) $(CFLAGS) $(LDFLAGS) $(EXTRA_LDFLAGS) $(SIMULATE_LDFLAGS)' \
	      MUTANT_OBJS='$(SIMULATE_OBJS)' MUTANT_LIBS='$(call link_libs,$(LIBS))' \
	      $(sanitized) sh $(SRCDIR)/fabtests/scripts/mutants.sh
mutants: with-tests $(SIM_FI) $(SIMULATE)
	@$(run_mutants) $(MUTANTS)
check-mutants: with-tests $(SIM_FI) $(SIMULATE)
	@$(run_mutants) --check
	@$(run_mutants) $(QUICK_MUTANTS)

# Measures one data plane with up to SCALE peers in a simulated world. SCALE_TIMES=
# does not judge times.
SCALE = 10000
SCALE_TIMES = times
scale: with-tests $(SIM_FI) $(SCALE_PROGRAM)
	@$(SCALE_PROGRAM) '$(SCALE)' $(SCALE_TIMES)

# Runs tests in a virtual machine, with devices that this host lacks. They are
# skipped if no virtual machine can be started.
check-vm: with-tests lib tools $(STAND_IN) $(VM_FILES) $(B)/fabtests/ft_files
	@MAY_SKIP=yes $(run_tests) \
		$(SRCDIR)/fabtests/scripts/vm_test.sh

demo: lib tools
	@BUILD='$(CURDIR)/$(B)' SRC='$(abspath $(SRCDIR))' \
		sh $(SRCDIR)/fabtests/scripts/demo.sh

# bench BENCH='WORD…'; BENCH=help lists the words.
bench: lib tools
	@BUILD='$(CURDIR)/$(B)' SRC='$(abspath $(SRCDIR))' \
		sh $(SRCDIR)/fabtests/scripts/bench.sh $(BENCH)

# Compares the miss ratio of the endpoint cache's policy with other policies.
SIEVE_BENCH_OBJS = $(B)/util/sieve_bench.o $(B)/util/sieve.o
$(B)/test/sieve_bench: $(SIEVE_BENCH_OBJS) $(B)/flags
	@mkdir -p $(@D)
	$(call say,LINK,$(@F))
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(EXTRA_LDFLAGS) -o $@ \
		$(SIEVE_BENCH_OBJS) -lm
bench-sieve: $(B)/test/sieve_bench
	@$<

# Compares file segments with fio; BENCH_DIR is the folder of the test file.
bench-files: lib tools
	@BUILD='$(CURDIR)/$(B)' SRC='$(abspath $(SRCDIR))' \
		sh $(SRCDIR)/fabtests/scripts/bench_files.sh $(BENCH)

# bench-rails BENCH='WORD…' measures several rails; it needs root. UNIT is the
# number of Mbit/s of one unit.
bench-rails: with-tests lib tools $(B)/fabtests/ft_links $(B)/fabtests/ft_many
	@BUILD='$(CURDIR)/$(B)' SRC='$(abspath $(SRCDIR))' \
		sh $(SRCDIR)/fabtests/scripts/bench_rails.sh \
		$(UNIT:%=unit=%) $(BENCH)

# bench-security BENCH='WORD…' measures the cost of bad clients for the others.
bench-security: with-tests lib $(SECURITY_BENCH_FILES)
	@mkdir -p $(B)/bench
	@$(B)/fabtests/te_security_bench --out=$(B)/bench $(BENCH)

# Compares the libfabric provider with the provider of its rails.
bench-prov: with-tests all $(PROV_BENCH_FILES)
	@BUILD='$(CURDIR)/$(B)' SRC='$(abspath $(SRCDIR))' \
	    sh $(SRCDIR)/fabtests/scripts/bench_prov.sh

# --- Python -----------------------------------------------------------------

# python builds the packages of api/python into build/python/lib, for this tree's
# library. wheel makes a wheel, which contains the library, in build/python/dist.
PYTHON = python3
SETUP_PY = cd $(SRCDIR)/api/python && MOONRAIL_LIBRARY='$(CURDIR)/$(B)/lib' \
	   PYTHONDONTWRITEBYTECODE=1 $(PYTHON) setup.py -q \
	   egg_info --egg-base '$(CURDIR)/$(B)/python' \
	   build --build-base '$(CURDIR)/$(B)/python' \
	   --build-lib '$(CURDIR)/$(B)/python/lib'
python: lib
	@mkdir -p $(B)/python
	$(call say,PYTHON,moonrail mooncake)
	$(Q)$(SETUP_PY)
wheel: lib
	@$(PYTHON) -c 'from setuptools import Distribution as d; d().get_command_class("bdist_wheel")' \
		2>/dev/null || { echo 'wheel: $(PYTHON) cannot make wheels: install the packages python3-setuptools and python3-wheel, or name another Python with PYTHON=/usr/bin/python3' >&2; \
		exit 1; }
	@mkdir -p $(B)/python
	$(call say,WHEEL,moonrail)
	$(Q)$(SETUP_PY) bdist_wheel --bdist-dir '$(CURDIR)/$(B)/python/wheel' \
		--dist-dir '$(CURDIR)/$(B)/python/dist'

# Compares calls from Python with the same calls from C.
$(B)/python/loop.so: $(SRCDIR)/fabtests/benchmarks/te_python_loop.c lib
	@mkdir -p $(@D)
	$(call say,CC,$(@F))
	$(Q)$(CC) -O2 -fPIC -shared -I$(SRCDIR)/api -o $@ $< -L$(B)/lib -lmoonrail \
		-Wl,-rpath,'$(CURDIR)/$(B)/lib'
bench-python: python $(B)/python/loop.so
	@PYTHONPATH='$(B)/python/lib' $(PYTHON) \
		$(SRCDIR)/fabtests/scripts/bench_python.py '$(CURDIR)/$(B)/python/loop.so'

# --- Rust and Go ------------------------------------------------------------

# rust builds the crate of api/rust into build/rust, and go compiles the package of
# api/go, both for this tree's library.
CARGO = cargo
GO = go
rust: lib
	$(call say,RUST,moonrail)
	$(Q)LIBMOONRAIL_DIR='$(CURDIR)/$(B)/lib' $(CARGO) build -q --offline \
		--locked --manifest-path '$(SRCDIR)/api/rust/Cargo.toml' \
		--target-dir '$(B)/rust' --examples
go: lib
	@mkdir -p $(B)/go
	$(call say,GO,moonrail)
	$(Q)out='$(CURDIR)/$(B)' && cd '$(SRCDIR)/api/go' && \
		GOCACHE="$$out/go/cache" GOPATH="$$out/go/path" GOPROXY=off \
		CGO_CFLAGS='-I$(abspath $(SRCDIR))/api' \
		CGO_LDFLAGS="-L$$out/lib -Wl,-rpath,$$out/lib" \
		$(GO) build -buildvcs=false -o "$$out/go/hello" ./examples/hello

# --- NIXL -------------------------------------------------------------------

# The plug-in for NIXL, if configure was given --nixl=DIR. NIXL_CXXFLAGS names the
# folder of Abseil's headers, which those of NIXL include.
NIXL_CXXFLAGS = $(shell pkg-config --cflags absl_log 2>/dev/null)
NIXL_SO = $(WITH_NIXL:%=$(B)/lib/nixl/libplugin_MOONRAIL.so)
$(B)/lib/nixl/libplugin_MOONRAIL.so: $(SRCDIR)/api/nixl/nixl_moonrail.cc \
		$(SRCDIR)/api/nixl/nixl_files.h $(SRCDIR)/api/moonrail.h \
		$(B)/lib/$(REAL_SO) $(B)/flags
	@mkdir -p $(@D)
	$(call say,CXX,$(@F))
	$(Q)$(CXX) -std=c++20 -O2 -g -fPIC -shared -Wall -Wextra \
		$(addprefix -isystem $(WITH_NIXL)/src/,api/cpp api/cpp/backend \
			infra core/telemetry utils) \
		$(NIXL_CXXFLAGS) -I$(SRCDIR)/api $(CXXFLAGS) $(LDFLAGS) -o $@ $< \
		-L$(B)/lib -lmoonrail -Wl,-rpath,'$$ORIGIN/..'
all: $(NIXL_SO)

# --- manual pages -----------------------------------------------------------

MAN_SRCS = $(wildcard $(SRCDIR)/man/*.[137])
MAN_PAGES = $(MAN_SRCS:$(SRCDIR)/man/%=$(B)/man/%)
.PHONY: man
man: $(MAN_PAGES)

$(B)/man/%: $(SRCDIR)/man/% $(SRCDIR)/VERSION $(SRCDIR)/scripts/man_page
	@mkdir -p $(@D)
	$(Q)sh $(SRCDIR)/scripts/man_page fill $< $(VERSION) >$@

# --- install ----------------------------------------------------------------

LIB_LINKS = $(SONAME) libmoonrail.so libtransfer_engine.so libtransfer_engine.a
man_page = sh $(SRCDIR)/scripts/man_page
cmakedir = $(libdir)/cmake/moonrail
completiondir = $(datadir)/bash-completion/completions

install: lib tools man $(NIXL_SO)
	install -d '$(DESTDIR)$(libdir)' '$(DESTDIR)$(includedir)' \
		'$(DESTDIR)$(pkgconfigdir)' '$(DESTDIR)$(bindir)'
	install -m 755 $(B)/lib/$(REAL_SO) '$(DESTDIR)$(libdir)'
	install -m 644 $(B)/lib/libmoonrail.a '$(DESTDIR)$(libdir)'
	ln -sf $(REAL_SO) '$(DESTDIR)$(libdir)/$(SONAME)'
	ln -sf $(SONAME) '$(DESTDIR)$(libdir)/libmoonrail.so'
	ln -sf $(SONAME) '$(DESTDIR)$(libdir)/libtransfer_engine.so'
	sh $(SRCDIR)/scripts/mooncake_libs '$(DESTDIR)$(libdir)' $(SONAME) \
		$(LIBS) -pthread
	install -m 644 $(HEADERS:%=$(SRCDIR)/api/%) \
		$(CXX_HEADERS:%=$(SRCDIR)/api/cxx/%) '$(DESTDIR)$(includedir)'
	for h in $(MOONCAKE_HEADERS); do \
		install -D -m 644 $(SRCDIR)/api/cxx/$$h \
			'$(DESTDIR)$(includedir)'/moonrail/$$h || exit 1; \
	done
	for so in $(NIXL_SO); do \
		install -D -m 755 $$so '$(DESTDIR)$(libdir)'/nixl/$${so##*/}; \
	done
	install -m 644 $(PC_FILES:%=$(B)/lib/%) '$(DESTDIR)$(pkgconfigdir)'
	install -d '$(DESTDIR)$(cmakedir)' '$(DESTDIR)$(completiondir)'
	install -m 644 $(CMAKE_FILES) '$(DESTDIR)$(cmakedir)'
	for tool in $(TOOLS); do \
		install -m 644 $(SRCDIR)/tools/completion/moonrail.bash \
			"$(DESTDIR)$(completiondir)/$$tool"; \
	done
	$(if $(PROV_SO),install -d '$(DESTDIR)$(libdir)/libfabric')
	$(if $(PROV_SO),install -m 755 $(PROV_SO) \
		'$(DESTDIR)$(libdir)/libfabric')
	$(if $(TOOLS),install -m 755 $(TOOL_FILES) '$(DESTDIR)$(bindir)')
	$(if $(MAN_PAGES),$(man_page) install '$(DESTDIR)$(mandir)' $(MAN_PAGES))

# Removes empty folders, except those that belong to the system.
uninstall: man
	cd '$(DESTDIR)$(libdir)' && rm -f $(REAL_SO) libmoonrail.a $(LIB_LINKS)
	cd '$(DESTDIR)$(includedir)' && rm -f $(HEADERS) $(CXX_HEADERS)
	rm -rf '$(DESTDIR)$(includedir)/moonrail/mooncake' \
		'$(DESTDIR)$(libdir)/moonrail'
	cd '$(DESTDIR)$(pkgconfigdir)' && rm -f $(PC_FILES)
	cd '$(DESTDIR)$(cmakedir)' && rm -f $(notdir $(CMAKE_FILES))
	cd '$(DESTDIR)$(completiondir)' && rm -f $(TOOLS)
	rm -f '$(DESTDIR)$(libdir)/libfabric/libmoonrail-fi.so'
	$(if $(TOOLS),cd '$(DESTDIR)$(bindir)' && rm -f $(TOOLS))
	$(if $(MAN_PAGES),$(man_page) remove '$(DESTDIR)$(mandir)' $(MAN_PAGES))
	for dir in '$(pkgconfigdir)' '$(cmakedir)' '$(libdir)/cmake' \
		'$(completiondir)' '$(datadir)/bash-completion' \
		'$(libdir)/libfabric' '$(libdir)' '$(includedir)/moonrail' \
		'$(includedir)' '$(bindir)' '$(mandir)' '$(datadir)' \
		'$(prefix)'; do \
		case $(DESTDIR)$$dir in \
		/usr|/usr/local|/opt|/usr/bin|/usr/lib|/usr/include|/usr/share) ;; \
		/usr/share/man|/usr/local/bin|/usr/local/lib|/usr/local/include) ;; \
		/usr/local/share|/usr/local/share/man) ;; \
		/usr/share/bash-completion*|/usr/lib/cmake) ;; \
		*) rmdir "$(DESTDIR)$$dir" 2>/dev/null || : ;; \
		esac; \
	done

# --- checks of the sources --------------------------------------------------

CHECK_ENV = BUILD='$(CURDIR)/$(B)' SRC='$(abspath $(SRCDIR))' CC='$(CC)' \
	    CXX='$(if $(filter yes,$(HAVE_CXX)),$(CXX))' \
	    CFLAGS='$(BASE_CFLAGS)' VERSION='$(VERSION)' TOOLS='$(TOOLS)'

check-abi: lib
	@$(CHECK_ENV) LIB_SRCS='$(SRCS)' \
		PROV_SO='$(PROV_SO:%=$(CURDIR)/%)' \
		sh $(SRCDIR)/scripts/check_abi
abi-record: config.mak
	@$(CHECK_ENV) sh $(SRCDIR)/scripts/abi_record
check-docs:
	@$(CHECK_ENV) perl $(SRCDIR)/scripts/docs.pl
	@$(CHECK_ENV) sh $(SRCDIR)/scripts/check_bindings
check-headers: config.mak
	@$(CHECK_ENV) sh $(SRCDIR)/scripts/check_headers
check-layers:
	@$(CHECK_ENV) sh $(SRCDIR)/scripts/check_layers
check-man: lib man $(B)/scripts/settings_rows
	@$(CHECK_ENV) sh $(SRCDIR)/scripts/check_man
check-prose:
	@$(CHECK_ENV) perl $(SRCDIR)/scripts/prose.pl
check-structure:
	@$(CHECK_ENV) perl $(SRCDIR)/scripts/structure.pl
check-style:
	@$(CHECK_ENV) sh $(SRCDIR)/scripts/check_style
stats:
	@$(CHECK_ENV) sh $(SRCDIR)/scripts/stats

$(B)/scripts/settings_rows: $(B)/scripts/settings_rows.o \
		$(B)/test/libmoonrail-test.a
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(EXTRA_LDFLAGS) -o $@ $^ \
		$(call link_libs,$(LIBS))

# --- the rest ---------------------------------------------------------------

define HELP
all               library, tools, tests, examples and manual pages
lib               the library and the libfabric provider
tools             te_bench, te_info and te_meta
tests             the test programs
examples          the programs of api/examples
man               the manual pages
python            the Python packages, in build/python/lib
rust              the Rust crate and its examples, in build/rust
go                the Go package and its example, in build/go
wheel             a Python wheel that contains the library, in build/python/dist
demo              transfers between two processes on this host
install           install below the prefix; DESTDIR=DIR is put before it
uninstall         remove what install has installed

check             the tests; T='WORD…': those whose name contains a word; JOBS=N
check-threads     the tests of threads, for a build with --enable-tsan
check-stress      random operations and faults, for two minutes
check-vm          the tests in a virtual machine
stress            random operations and faults, for STRESS=SECONDS
simulate          the provider, engines and the data plane in a simulated world; SIM=SECONDS, SEED=N
simulate-fences   FENCES=100000 simulated fences against their model; SEED=N
mutants           mutants of the protocol, which the simulator must find; MUTANTS='WORD…'
scale             memory and time of a data plane with SCALE=10000 peers
fuzz              random input to every parser, for FUZZ=SECONDS per case

check-abi         the symbols against api/moonrail.map and api/moonrail.abi
check-docs        the documents against the sources, the bindings against the C API
check-headers     each header compiles alone
check-layers      the includes between the folders
check-mutants     each mutant applies and compiles; the simulator finds three
check-man         the manual pages against the library and the tools
check-prose       the language of the comments
check-structure   the sizes of files and structs
check-style       licences, white space, lists and scripts
abi-record        write api/moonrail.abi again, after a change of a header
stats             the lengths of functions and files

bench             the engine against plain libfabric; BENCH=help lists the words
bench-files       file segments against fio
bench-prov        the libfabric provider against the provider below it
bench-python      writes from Python against the same writes from C
bench-rails       several rails, and rails that fail
bench-security    what one bad client costs the other clients of a target
bench-sieve       the endpoint cache against other policies

clean             remove build
distclean         remove build and what configure has written
endef

help:
	$(info $(HELP))
	@:

clean:
	rm -rf $(B)
distclean: clean
	rm -f config.h config.mak config.log

ALL_OBJS = $(sort $(LIB_OBJS) $(STAND_IN_OBJS) $(SIM_FI_OBJS) $(SIMULATE_OBJS) $(SCALE_OBJS) $(PROV_OBJS) $(TEST_OBJS) $(PROGRAM_OBJS) $(COMMON_OBJS) \
	   $(SUPPORT_OBJS) $(B)/scripts/settings_rows.o \
	   $(B)/util/sieve_bench.o)
-include $(ALL_OBJS:.o=.d)
