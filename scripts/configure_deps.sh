# SPDX-License-Identifier: BSD-2-Clause
#
# The part of configure, which sources this file, that looks for libraries and
# tools and installs missing ones: the sets of Debian packages, the probes, and
# the calls of apt-get.

# configure sets and reads variables of this file.
# shellcheck shell=sh disable=SC2034,SC2154

# --- packages ---------------------------------------------------------------

# Each variable tools_… is a list of PACKAGE=COMMAND or PACKAGE=FILE. A single
# name is the name of both the package and the command. probe_libraries has the
# packages of the libraries. --install-deps installs the libraries and tools_main,
# --install-deps=python also tools_python, --install-deps=test also tools_test,
# and --install-deps=vm also tools_vm.
tools_main='pkg-config'
py=/usr/lib/python3/dist-packages
tools_python="python3-dev=/usr/bin/python3-config python3-setuptools=$py/setuptools
	python3-wheel=$py/wheel python3-venv=/usr/share/python-wheels"
tools_test="cmake default-jre-headless=java zookeeper=/usr/share/java/zookeeper.jar
	redis-server redis-tools=redis-cli etcd-server=etcd
	iproute2=ip iptables mandoc python3 ethtool libfabric-bin=fi_pingpong
	openmpi-bin=mpirun libopenmpi-dev=mpicc python3-pytest=$py/pytest
	rustc cargo golang-go=go spin patch"
tools_vm='qemu-system-x86=qemu-system-x86_64 cpio xz-utils=xz kmod=modprobe
	ibverbs-providers=/etc/libibverbs.d/rxe.driver busybox-static=/bin/busybox
	e2fsprogs=mkfs.ext4'

# --- probes -----------------------------------------------------------------

result()
{
	printf '%-31s %s\n' "$1" "$2"
	printf '=== %s: %s\n\n' "$1" "$2" >>"$log"
}

# compile SUFFIX COMPILER FLAG… compiles the program on standard input.
compile()
{
	probe=$tmp/probe.$1
	compiler=$2
	shift 2
	cat >"$probe"
	{ printf -- '--- %s %s\n' "$compiler" "$*"; cat "$probe"; } >>"$log"
	# A compiler may be several words: "ccache gcc".
	# shellcheck disable=SC2086
	$compiler "$@" -o "$tmp/probe" "$probe" $late >>"$log" 2>&1
}
late=''

# need PACKAGE TITLE LIBS FLAG… compiles the program on standard input. If that
# fails, need adds the package to the list missing.
need()
{
	package=$1 title=$2 late=$3
	shift 3
	if compile c "$cc" -std=c11 -D_GNU_SOURCE "$@"; then
		result "$title" yes
	else
		result "$title" no
		missing="$missing $package"
	fi
	late=''
}

# need_call PACKAGE TITLE LIBS HEADER EXPRESSION FLAG… probes with "return EXPRESSION".
need_call()
{
	expression=$5 package=$1 title=$2 libs=$3 header=$4
	shift 5
	need "$package" "$title" "$libs" -include "$header" "$@" <<-PROGRAM
	int main(void) { return $expression; }
	PROGRAM
}

# want_call does what need_call does, for an optional library: it sets have to
# yes or no, and adds the package of an absent library to the list absent.
want_call()
{
	before=$missing have=yes
	need_call "$@"
	[ "$missing" = "$before" ] || have=no absent="$absent $1" missing=$before
}

# want_tools PACKAGE=COMMAND|FILE… adds the packages whose command or file does not
# exist to the absent ones.
want_tools()
{
	for tool in "$@"; do
		file=${tool#*=}
		if [ -e "$file" ] || command -v "$file" >/dev/null 2>&1; then
			result "$file" yes
		else
			result "$file" no
			absent="$absent ${tool%%=*}"
		fi
	done
}

probe_libfabric()
{
	fabric_cflags='' fabric_libs=-lfabric
	if [ -n "$libfabric" ]; then
		[ -f "$libfabric/include/rdma/fabric.h" ] ||
			die "--libfabric: no include/rdma/fabric.h below $libfabric"
		libfabric=$(cd "$libfabric" && pwd)
		case $libfabric in
		*[[:space:]]*) die "--libfabric: a path with a space: $libfabric" ;;
		esac
		lib=$libfabric/lib
		[ -e "$lib/libfabric.so" ] || lib=$libfabric/lib64
		[ -e "$lib/libfabric.so" ] ||
			die "--libfabric: no lib/libfabric.so below $libfabric"
		fabric_cflags=-I$libfabric/include
		fabric_libs="-L$lib -Wl,-rpath,$lib -lfabric"
	fi
	before=$missing
	# shellcheck disable=SC2086
	need libfabric-dev 'libfabric 1.17 or newer' "$fabric_libs" \
		$fabric_cflags <<-PROGRAM
	#include <rdma/fabric.h>
	#if FI_MAJOR_VERSION < 2 && FI_MINOR_VERSION < 17
	#error too old
	#endif
	int main(void) { return fi_version() == 0; }
	PROGRAM
	[ -z "$libfabric" ] || [ "$missing" = "$before" ] || [ -n "$before" ] ||
		die "--libfabric=$libfabric doesn't work; see config.log"
}

# Without a compiler every probe fails, so the message only names the compiler.
die_compiler()
{
	command -v "${cc%% *}" >/dev/null 2>&1 || die "no C compiler: the command '${cc%% *}' was not found
  apt-get install build-essential
or ./configure --install-deps does it; --cc=COMMAND names another compiler."
	die "the C compiler '$cc' does not build a C11 program; see config.log"
}

# Sets missing to the packages of the libraries that are required and absent.
probe_libraries()
{
	missing=''
	need build-essential "C11 compiler ($cc)" '' <<-PROGRAM
	_Thread_local int x;
	int main(void) { return __atomic_load_n(&x, __ATOMIC_RELAXED); }
	PROGRAM
	[ -z "$missing" ] || [ -n "$install" ] || die_compiler
	probe_libfabric
	need_call libnuma-dev libnuma -lnuma numa.h 'numa_available() == 1'
	need_call libcjson-dev cJSON -lcjson cjson/cJSON.h 'cJSON_Version()[0] == 0'
	need_call nettle-dev nettle -lnettle nettle/memops.h '!memeql_sec("", "", 0)'
	need_call libibverbs-dev libibverbs -libverbs infiniband/verbs.h 'ibv_get_device_list(0) == 0'
	hwloc_libs='' store_libs=''
	if [ "$hwloc" = yes ]; then
		hwloc_libs=-lhwloc
		need_call libhwloc-dev hwloc -lhwloc hwloc.h 'hwloc_get_api_version() == 0'
	fi
	if [ "$zookeeper" = yes ]; then
		store_libs=-lzookeeper_mt
		need_call libzookeeper-mt-dev 'ZooKeeper C client' \
			'-lzookeeper_mt -pthread' zookeeper/zookeeper.h \
			'zerror(0)[0] == 0' -DTHREADED
	fi
	if [ "$redis" = yes ]; then
		store_libs="$store_libs -lhiredis"
		need_call libhiredis-dev hiredis -lhiredis hiredis/hiredis.h \
			'redisReaderCreate() == 0'
	fi
	if [ "$etcd$http" != nono ]; then
		store_libs="$store_libs -lcurl"
		need_call libcurl4-openssl-dev 'libcurl 7.68 or newer' -lcurl curl/curl.h \
			'curl_multi_wakeup(0) == CURLM_OK'
	fi
	[ "$serve" = no ] ||
		need_call libmicrohttpd-dev libmicrohttpd -lmicrohttpd microhttpd.h \
			'MHD_is_feature_supported(MHD_FEATURE_EPOLL) == MHD_NO'
}

# Sets missing, absent_main, absent_python, absent_test and absent_vm to lists of
# packages, and with_tests to no if CUnit is absent.
# shellcheck disable=SC2086
probe_all()
{
	absent_python='' absent_test='' absent_vm='' with_tests=$tests uring_libs=''
	probe_libraries
	absent=''
	if [ "$uring" = yes ]; then
		want_call liburing-dev 'liburing 2.3 (optional)' -luring liburing.h \
			'io_uring_submit_and_get_events(0)'
		[ "$have" = no ] || uring_libs=-luring
	fi
	want_tools $tools_main
	absent_main=$absent absent=''
	if [ "$tests" = yes ] || [ "$install" = python ]; then
		want_tools $tools_python
	fi
	absent_python=$absent absent=''
	[ "$tests" = yes ] || return 0
	want_call libcunit1-dev CUnit -lcunit CUnit/CUnit.h 'CU_initialize_registry() != CUE_SUCCESS'
	with_tests=$have
	want_tools $tools_test
	absent_test=$absent absent=''
	[ "$install" != vm ] || want_tools $tools_vm
	absent_vm=$absent
}

# --- installation -----------------------------------------------------------

# Prints the packages that --install-deps=$install installs.
wanted_packages()
{
	case $install in
	yes) echo "$missing$absent_main" ;;
	python) echo "$missing$absent_main$absent_python" ;;
	test|vm) echo "$missing$absent_main$absent_python$absent_test$absent_vm" ;;
	esac
}

apt_install()
{
	# shellcheck disable=SC2086
	$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y \
		--no-install-recommends $packages </dev/null >>"$log" 2>&1
}

install_packages()
{
	packages=$(wanted_packages)
	[ -n "$packages" ] || return 0
	command -v apt-get >/dev/null 2>&1 ||
		die "--install-deps needs apt-get; missing:$packages"
	sudo=''
	if [ "$(id -u)" -ne 0 ]; then
		command -v sudo >/dev/null 2>&1 ||
			die "--install-deps needs root or sudo; missing:$packages"
		sudo=sudo
	fi
	printf 'installing%s …\n' "$packages"
	# The package lists may be missing or old: update them only if the installation fails.
	if ! apt_install; then
		$sudo apt-get update </dev/null >>"$log" 2>&1 || :
		apt_install || {
			tail -n 5 "$log" >&2
			die "apt-get failed; see config.log"
		}
	fi
	install=''
	probe_all
}

# Ends configure if a required library is missing. For other absent packages,
# prints which features are left out.
report_missing()
{
	[ -z "$missing" ] || die "missing:$missing
  apt-get install$missing
or ./configure --install-deps does it."
	[ "$with_tests" = "$tests" ] ||
		printf 'No tests are built, because CUnit is missing.\n'
	[ -z "$absent_python$absent_test" ] ||
		printf 'To build and run all tests: ./configure --install-deps=test, or apt-get install%s\n' \
			"$absent_python$absent_test"
	[ -z "$absent_vm" ] || printf 'For make check-vm: apt-get install%s\n' "$absent_vm"
}
