#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# zk_server.sh [-a ADDRESS] DIR ID CLIENT_PORT [PEER_PORT ELECTION_PORT]…
#
# Runs ZooKeeper server number ID (from 1) in this process, with its data in DIR.
# It accepts clients on CLIENT_PORT of ADDRESS (127.0.0.1). The other arguments are
# a pair of ports for each server of an ensemble; a single server needs none. The
# exit status is 77 if Java or ZooKeeper is missing, or if the library in BUILD was
# configured without ZooKeeper. ZK_FORCE_SYNC=yes makes each
# write durable on the disk.
set -eu

address=127.0.0.1
if [ "$1" = -a ]; then
	address=$2
	shift 2
fi
dir=$1 id=$2 port=$3
shift 3
jar=/usr/share/java/zookeeper.jar
[ ! -e "${BUILD:-}/../config.h" ] ||
	grep -q TEI_HAVE_ZOOKEEPER "$BUILD/../config.h" ||
	{ echo 'built with --disable-zookeeper' >&2; exit 77; }
command -v java >/dev/null || { echo 'no java' >&2; exit 77; }
[ -e "$jar" ] || { echo "no $jar" >&2; exit 77; }

mkdir -p "$dir/data"
echo "$id" >"$dir/data/myid"
{
	cat <<-TEXT
	tickTime=100
	initLimit=100
	syncLimit=30
	minSessionTimeout=200
	maxSessionTimeout=60000
	dataDir=$dir/data
	clientPort=$port
	clientPortAddress=$address
	maxClientCnxns=0
	admin.enableServer=false
	4lw.commands.whitelist=srvr
	preAllocSize=1024
	TEXT
	n=0
	while [ $# -gt 0 ]; do
		n=$((n + 1))
		echo "server.$n=127.0.0.1:$1:$2"
		shift 2
	done
} >"$dir/zoo.cfg"

die=''
! command -v setpriv >/dev/null || die='setpriv --pdeathsig KILL'
# shellcheck disable=SC2086
exec $die java -Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
	-XX:-UsePerfData "-Dzookeeper.forceSync=${ZK_FORCE_SYNC:-no}" \
	-cp "$jar" org.apache.zookeeper.server.quorum.QuorumPeerMain \
	"$dir/zoo.cfg" >>"$dir/log" 2>&1
