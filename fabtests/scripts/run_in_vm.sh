#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# run_in_vm.sh [-fn] [-r RAILS] [-t SECONDS] [-m MIB] [-c CPUS] COMMAND…
#	runs COMMAND as root in an emulated machine with Debian's kernel, in the
#	same folder and with the same environment. The machine sees the files of
#	the host; its changes to them are discarded. -r: RAILS rails of software
#	RDMA devices, rxeN at 10.77.N.1 on veN and rxpN at 10.77.N.2 on vpN; veN
#	and vpN are the ends of a veth pair. -f: a file system on NVMe over TCP
#	at /mnt/nvmeof; its target (subsystem and port 1 of nvmet) is the same
#	machine. -n: two NUMA nodes, each with half of the processors and memory;
#	nicN at 10.78.N.1 and /dev/nodeN, an NVMe disk of zeros, are behind a
#	bridge of node N.
#
# The exit status is that of COMMAND; 77 (with the reason) if no machine can be
# made; 124 after SECONDS (300); 125 if the machine died; 126 if its kernel
# failed.
#
# MOONRAIL_VM_KERNEL is a folder with boot/vmlinuz-VERSION and
# lib/modules/VERSION. Without it, apt-get downloads the kernel package once, to
# BUILD/vm. MOONRAIL_VM_ACCEL=kvm uses the virtualisation of the host; the
# default is emulation, which is slow but works everywhere.
set -u
: "${SRC:=$(cd "$(dirname "$0")/../.." && pwd)}" "${BUILD:=$SRC/build}"
PATH=$PATH:/usr/sbin:/sbin
rails=0 files='' nodes='' limit=300 mib=1024 cpus=2
tmp='' reader='' machine=''

skip()
{
	printf 'SKIP: %s\n' "$*"
	exit 77
}

die()
{
	printf 'run_in_vm.sh: %s\n' "$*" >&2
	exit 125
}

clean_up()
{
	[ -z "$machine" ] || kill "$machine" 2>/dev/null
	[ -z "$reader" ] || kill "$reader" 2>/dev/null
	[ -z "$tmp" ] || rm -rf "$tmp"
}

quote()
{
	printf "'%s' " "$(printf '%s' "$1" | sed "s/'/'\\\\''/g")"
}

# --- the kernel -------------------------------------------------------------

need_tools()
{
	[ "$(uname -m)" = x86_64 ] || skip "virtual machines: x86-64 only"
	for tool in qemu-system-x86_64 modprobe depmod cpio xz /bin/busybox \
		${files:+mkfs.ext4}; do
		command -v "$tool" >/dev/null 2>&1 || skip \
			"no $tool; ./configure --install-deps=vm installs it"
	done
}

# Unpacks only the files that the tests need; the whole package has 400 MB.
unpack_kernel()
{
	dpkg-deb --fsys-tarfile "$1" | tar -x -C "$2" --wildcards \
		'./boot/vmlinuz-*' './lib/modules/*/modules.*' \
		'./lib/modules/*/kernel/arch/*' \
		'./lib/modules/*/kernel/block/*' \
		'./lib/modules/*/kernel/crypto/*' \
		'./lib/modules/*/kernel/drivers/block/null_blk/*' \
		'./lib/modules/*/kernel/drivers/char/*' \
		'./lib/modules/*/kernel/drivers/infiniband/*' \
		'./lib/modules/*/kernel/drivers/net/ethernet/intel/e1000e/*' \
		'./lib/modules/*/kernel/drivers/net/veth.ko*' \
		'./lib/modules/*/kernel/drivers/nvme/*' \
		'./lib/modules/*/kernel/drivers/pps/*' \
		'./lib/modules/*/kernel/drivers/ptp/*' \
		'./lib/modules/*/kernel/drivers/virtio/*' \
		'./lib/modules/*/kernel/fs/*' \
		'./lib/modules/*/kernel/lib/*' \
		'./lib/modules/*/kernel/net/*'
}

fetch_kernel()
{
	rm -rf "$1" "$1.new"
	mkdir -p "$1.new" || die "no folder $1"
	(
		cd "$1.new" || exit 1
		package=$(apt-cache depends linux-image-amd64 2>/dev/null |
			sed -n 's/^ *Depends: \(linux-image-[^ ]*\)$/\1/p' |
			head -n 1)
		[ -n "$package" ] && apt-get download "$package" &&
			unpack_kernel "$(echo ./*.deb)" . && rm -f ./*.deb
	) >"$1.log" 2>&1 && mv "$1.new" "$1"
}

# Sets kernel to the folder of an earlier run, or gets the package by apt-get.
find_kernel()
{
	kernel=${MOONRAIL_VM_KERNEL:-$BUILD/vm/kernel}
	# A folder of an older version may lack these modules.
	! ls "$kernel"/lib/modules/*/kernel/drivers/nvme >/dev/null 2>&1 ||
		return 0
	[ -z "${MOONRAIL_VM_KERNEL:-}" ] || skip \
		"no lib/modules with drivers/nvme in $kernel"
	mkdir -p "$BUILD/vm"
	fetch_kernel "$kernel" || {
		[ "$(id -u)" -ne 0 ] || apt-get update >/dev/null 2>&1
		fetch_kernel "$kernel"
	} || skip "no kernel image to be had: $(tail -n 1 "$kernel.log")"
}

# number FILE OFFSET SIZE: prints an unsigned little-endian number.
number()
{
	od -An "-tu$3" -j "$2" -N "$3" "$1" | tr -d ' '
}

# Unpacks the kernel from the boot image, because the emulated machine would need
# a large part of its start for that. The header of the image has the position.
unpack_image()
{
	image=$kernel/boot/vmlinuz-$version elf=$kernel/boot/vmlinux-$version
	[ ! -e "$elf" ] || return 0
	from=$((($(number "$image" 497 1) + 1) * 512 + \
		$(number "$image" 584 4)))
	length=$(($(number "$image" 588 4) - 4))
	tail -c "+$((from + 1))" "$image" | head -c "$length" |
		xz -dc >"$elf.new" 2>/dev/null && mv "$elf.new" "$elf" && return
	rm -f "$elf.new"
	elf=$image
}

prepare_kernel()
{
	find_kernel
	version=$(ls "$kernel/lib/modules") || die "no modules in $kernel"
	[ -e "$kernel/lib/modules/$version/modules.dep.bin" ] ||
		depmod -b "$kernel" "$version" || die "depmod failed"
	unpack_image
}

# --- the initrd, which mounts the files of the host --------------------------

make_initrd()
{
	mkdir -p "$tmp/first/bin" "$tmp/first/modules"
	cp /bin/busybox "$tmp/first/bin/" || die "no /bin/busybox"
	for module in virtio_pci 9pnet_virtio 9p overlay virtio_console; do
		modprobe -d "$kernel" -S "$version" --show-depends "$module" ||
			die "the kernel has no module $module"
	done | sed -n 's/^insmod \([^ ]*\).*/\1/p' | awk '!seen[$0]++' |
	while read -r file; do
		cp "$file" "$tmp/first/modules/"
		echo "insmod /modules/${file##*/}"
	done >"$tmp/first/load"
	cat >"$tmp/first/init" <<-INIT
	#!/bin/busybox sh
	/bin/busybox --install -s /bin
	export PATH=/bin
	mkdir -p /proc /sys /dev /host /layer
	mount -t proc none /proc
	mount -t sysfs none /sys
	mount -t devtmpfs none /dev
	. /load
	mount -t 9p -o ro,cache=loose,trans=virtio,version=9p2000.L,msize=512000 host /host
	mount -t tmpfs none /layer
	mkdir /layer/new /layer/work /layer/root
	mount -t overlay -o lowerdir=/host,upperdir=/layer/new,workdir=/layer/work none /layer/root
	for dir in proc sys dev; do
		mount --move /\$dir /layer/root/\$dir
	done
	for dir in run dev/shm; do
		mkdir -p /layer/root/\$dir
		mount -t tmpfs none /layer/root/\$dir
	done
	exec switch_root /layer/root /bin/sh $tmp/guest
	INIT
	chmod +x "$tmp/first/init"
	(cd "$tmp/first" && find . | cpio -o -H newc --quiet) >"$tmp/initrd" ||
		die "cpio failed"
}

# --- process 1, which runs after the initrd ---------------------------------

guest_script()
{
	export -p
	printf 'kernel=%s rails=%s files=%s nodes=%s\n' \
		"$(quote "$kernel")" "$rails" "$files" "$nodes"
	printf 'folder=%s\n' "$(quote "$PWD")"
	cat <<-'GUEST'
	for port in /sys/class/virtio-ports/*; do
		case $(cat "$port/name") in
		out) out=/dev/${port##*/} ;;
		status) status=/dev/${port##*/} ;;
		esac
	done
	finish()
	{
		echo "$1" >"$status"
		echo b >/proc/sysrq-trigger
		sleep 99
	}
	try()
	{
		"$@" && return
		echo "run_in_vm.sh: failed: $*" >"$out"
		finish 125
	}
	# rail N: makes two devices, and routes by source address, so that
	# packets from one to the other cross the veth pair
	rail()
	{
		try ip link add "ve$1" type veth peer name "vp$1"
		try ip addr add "10.77.$1.1/24" dev "ve$1"
		try ip addr add "10.77.$1.2/24" dev "vp$1"
		try ip link set "ve$1" up
		try ip link set "vp$1" up
		try rdma link add "rxe$1" type rxe netdev "ve$1"
		try rdma link add "rxp$1" type rxe netdev "vp$1"
		side "$1" 1 2 "ve$1"
		side "$1" 2 1 "vp$1"
	}
	side()
	{
		try ip rule add pref 10 from "10.77.$1.$2" to "10.77.$1.$3" \
			iif lo lookup "$((100 + $1 * 2 + $2))"
		try ip route add "10.77.$1.$3" dev "$4" \
			table "$((100 + $1 * 2 + $2))"
	}
	links_are_up()
	{
		! rdma link | grep -qv ACTIVE
	}
	make_rails()
	{
		conf=/proc/sys/net/ipv4/conf/all
		for module in rdma_rxe ib_uverbs rdma_ucm veth; do
			try modprobe "$module"
		done
		echo 0 >"$conf/rp_filter"
		echo 1 >"$conf/accept_local"
		n=0
		while [ "$n" -lt "$rails" ]; do
			rail "$n"
			n=$((n + 1))
		done
		try ip rule add pref 100 lookup local
		try ip rule del pref 0
		await links_are_up
	}
	# await COMMAND…: repeats COMMAND until it succeeds
	await()
	{
		tries=0
		until "$@" >/dev/null 2>&1; do
			tries=$((tries + 1))
			[ "$tries" -lt 300 ] || try false "$@"
			sleep 0.1
		done
	}
	make_nics()
	{
		try modprobe e1000e
		for n in 0 1; do
			await grep -l "52:54:00:78:00:0$n" \
				/sys/class/net/*/address
			nic=$(grep -l "52:54:00:78:00:0$n" \
				/sys/class/net/*/address)
			nic=${nic%/address}
			try ip link set "${nic##*/}" name "nic$n"
			try ip addr add "10.78.$n.1/24" dev "nic$n"
			try ip link set "nic$n" up
		done
	}
	# runs after make_files, which relies on the name nvme0n1
	make_disks()
	{
		try modprobe nvme
		for n in 0 1; do
			await grep -l "node$n" /sys/class/nvme/nvme*/serial
			disk=$(grep -l "node$n" /sys/class/nvme/nvme*/serial)
			disk=${disk%/serial}
			await [ -b "/dev/${disk##*/}n1" ]
			try ln -s "${disk##*/}n1" "/dev/node$n"
		done
	}
	# makes a disk of 128 MiB in memory and connects to it over TCP; the
	# timeouts are long because the disk is slow
	make_files()
	{
		try modprobe nvme_core io_timeout=250 admin_timeout=250
		for module in nvmet-tcp nvme-tcp ext4; do
			try modprobe "$module"
		done
		try modprobe null_blk nr_devices=0
		config=/sys/kernel/config
		try mount -t configfs none "$config"
		try mkdir "$config/nullb/disk"
		for set in size=128 blocksize=4096 memory_backed=1 power=1; do
			try tell "${set#*=}" "$config/nullb/disk/${set%=*}"
		done
		space=$config/nvmet/subsystems/moonrail/namespaces/1
		port=$config/nvmet/ports/1
		try mkdir -p "$space" "$port"
		try tell 1 "${space%/n*}/attr_allow_any_host"
		try tell -n /dev/disk "$space/device_path"
		try tell 1 "$space/enable"
		for set in trtype=tcp adrfam=ipv4 traddr=127.0.0.1 \
			trsvcid=4420; do
			try tell "${set#*=}" "$port/addr_${set%=*}"
		done
		try ln -s "${space%/n*}" "$port/subsystems/"
		try tell -n "transport=tcp,traddr=127.0.0.1,trsvcid=4420,nqn=moonrail,keep_alive_tmo=0" \
			/dev/nvme-fabrics
		await [ -b /dev/nvme0n1 ]
		try mkfs.ext4 -qF /dev/nvme0n1
		try mkdir -p /mnt/nvmeof
		try mount -o noatime /dev/nvme0n1 /mnt/nvmeof
	}
	# tell [-n] WORD FILE: writes WORD to FILE, without a newline with -n
	tell()
	{
		if [ "$1" = -n ]; then
			printf %s "$2" >"$3"
		else
			echo "$1" >"$2"
		fi
	}
	ln -s /proc/self/fd /dev/fd
	ln -s fd/0 /dev/stdin
	ln -s fd/1 /dev/stdout
	ln -s fd/2 /dev/stderr
	# the kernel loads some modules by itself
	mkdir -p /lib/modules
	ln -s "$kernel/lib/modules/$(uname -r)" /lib/modules/
	# libibverbs and others search the four megabytes of kallsyms at start
	try mount --bind /dev/null /proc/kallsyms
	hostname vm
	try ip link set lo up
	[ -z "$nodes" ] || make_nics
	[ "$rails" -eq 0 ] || make_rails
	[ -z "$files" ] || make_files
	[ -z "$nodes" ] || make_disks
	try cd "$folder"
	GUEST
	# shellcheck disable=SC2016
	printf 'mkfifo /run/out\ncat /run/out >"$out" &\n'
	for word; do
		quote "$word"
	done
	# shellcheck disable=SC2016
	printf '</dev/null >/run/out 2>&1\nresult=$?\nwait\nfinish "$result"\n'
}

# --- the machine ------------------------------------------------------------

# node N: prints the options for its memory and processors, and for a NIC and an
# NVMe disk behind a bridge of its own. The disk discards writes. The NICs are on
# one hub.
node()
{
	from=$(($1 * cpus / 2))
	to=$((($1 + 1) * cpus / 2 - 1))
	echo "-object memory-backend-ram,id=m$1,size=$((mib / 2))M
		-numa node,nodeid=$1,cpus=$from-$to,memdev=m$1
		-device pxb-pcie,id=x$1,bus=pcie.0,bus_nr=$((64 + 64 * $1)),numa_node=$1
		-device pcie-root-port,id=p$1,bus=x$1,chassis=$1
		-netdev hubport,hubid=0,id=h$1
		-device e1000e,bus=p$1,netdev=h$1,mac=52:54:00:78:00:0$1
		-device pcie-root-port,id=q$1,bus=x$1,chassis=1$1
		-drive if=none,id=d$1,driver=null-co,size=64M,read-zeroes=on
		-device nvme,bus=q$1,drive=d$1,serial=node$1"
}

start_machine()
{
	more=''
	[ -z "$nodes" ] || more="$(node 0) $(node 1)"
	mkfifo "$tmp/out"
	cat "$tmp/out" &
	reader=$!
	# shellcheck disable=SC2086
	timeout -k 5 "$limit" qemu-system-x86_64 -nodefaults -no-user-config \
		-display none -monitor none -no-reboot -M q35 \
		-accel "${MOONRAIL_VM_ACCEL:-tcg,thread=multi}" \
		-cpu max -smp "$cpus" -m "$mib" \
		-kernel "$elf" -initrd "$tmp/initrd" \
		-append 'console=ttyS0 quiet panic=-1 oops=panic softlockup_panic=1 watchdog_thresh=30 mitigations=off nokaslr tsc=reliable cryptomgr.notests' \
		-serial "file:$tmp/console" \
		-fsdev 'local,id=host,path=/,security_model=none,readonly=on,multidevs=remap' \
		-device virtio-9p-pci,fsdev=host,mount_tag=host \
		-device virtio-serial-pci \
		-chardev "file,id=out,path=$tmp/out" \
		-device virtserialport,name=out,chardev=out \
		-chardev "file,id=status,path=$tmp/status" \
		-device virtserialport,name=status,chardev=status \
		$more \
		</dev/null 2>"$tmp/qemu" &
	machine=$!
}

while getopts fnr:t:m:c: option; do
	case $option in
	f) files=yes ;;
	n) nodes=yes ;;
	r) rails=$OPTARG ;;
	t) limit=$OPTARG ;;
	m) mib=$OPTARG ;;
	c) cpus=$OPTARG ;;
	*) sed -n '4,13s/^# \{0,1\}//p' "$0" >&2; exit 125 ;;
	esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || die 'no command'
need_tools
tmp=$(mktemp -d "${TMPDIR:-/tmp}/moonrail-vm.XXXXXX") || die 'no folder in /tmp'
trap clean_up EXIT
trap 'exit 125' HUP INT TERM
prepare_kernel
make_initrd
guest_script "$@" >"$tmp/guest"
start_machine
wait "$machine"
result=$?
machine=''
# Give the reader its end of file even if the machine never opened the pipe.
: <>"$tmp/out"
wait "$reader"
reader=''
status=$(cat "$tmp/status" 2>/dev/null)
[ "${status:-125}" -ne 125 ] || tail -n 20 "$tmp/console" "$tmp/qemu" >&2
[ -n "$status" ] || [ "$result" -ne 124 ] || status=124
if [ -z "$status" ] && grep -q 'Kernel panic' "$tmp/console"; then
	status=126
	echo 'run_in_vm.sh: the kernel of the machine broke:' >&2
	tr -d '\r' <"$tmp/console" | grep -m 1 -A 40 \
		-e 'kernel BUG' -e 'BUG: ' -e 'Oops' -e 'Kernel panic' >&2
fi
exit "${status:-125}"
