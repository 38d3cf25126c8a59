#!/bin/bash
# slurm-peer.sh up|down DIR [accounting [SITE]]: a private Slurm on this host to measure beside Muster, tuned for
# throughput as Slurm's high-throughput guide says. SITE is a directory with other nodes (one a line), partitions and
# settings, which count instead of those below (slurm.conf, gres.conf); 'accounting' may be empty then. Needs Debian's slurm-wlm, slurmctld, slurmd and
# munge; with 'accounting', slurmdbd, slurm-wlm-mysql-plugin and mariadb-server too. Prints the variables that point
# commands at it. Nothing outside DIR is touched.
set -euo pipefail
verb=$1 dir=$2 accounting=${3:-} site=${4:-} cpus=512 port=17100 nodes=(n1 n2 n3 n4)
alive() { [ -s "$1" ] && kill -0 "$(cat "$1")" 2>/dev/null; }
wait_for() { for _ in $(seq 600); do "$@" >/dev/null 2>&1 && return; sleep .05; done; echo "slurm-peer: gave up on: $*" >&2; exit 1; }

if [ "$verb" = down ]; then
  for f in "$dir"/run/slurmd.*.pid "$dir"/run/slurmctld.pid "$dir"/run/slurmdbd.pid \
    "$dir"/run/mariadbd.pid "$dir"/run/munged.pid; do
    alive "$f" && kill "$(cat "$f")" || true
  done
  # They write until their end.
  for f in "$dir"/run/*.pid; do
    for _ in $(seq 200); do alive "$f" || break; sleep .05; done
  done
  exit
fi
# Another one may be running.
while (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((port + 20)); done
command -v slurmctld slurmd munged >/dev/null || { echo "slurm-peer: slurmctld, slurmd or munged is not installed" >&2; exit 3; }
if [ -n "$accounting" ]; then
  command -v slurmdbd mariadbd mariadb-install-db >/dev/null ||
    { echo "slurm-peer: slurmdbd or mariadbd is not installed" >&2; exit 3; }
fi
mkdir -p "$dir"/{run,log,state,munge}; chmod 755 "$dir" "$dir/run" "$dir/munge"
[ -s "$dir/munge/key" ] || (umask 077; head -c 1024 /dev/urandom >"$dir/munge/key")
alive "$dir/run/munged.pid" || munged --force --key-file="$dir/munge/key" --socket="$dir/munge/socket" \
  --pid-file="$dir/run/munged.pid" --log-file="$dir/log/munged.log" --seed-file="$dir/munge/seed" --num-threads=10
host=$(hostname)

# The database is on this disk as everything is, with its usual safety: a sync for each transaction.
database() {
  # Another section of the same run may have had one here.
  rm -rf "$dir/db"
  mkdir -p "$dir/db" && chown mysql "$dir/db" && chmod 755 "$dir/db"
  mariadb-install-db --no-defaults --user=mysql --datadir="$dir/db/data" --auth-root-authentication-method=normal --skip-test-db >"$dir/log/install.log" 2>&1
  setsid mariadbd --no-defaults --user=mysql --datadir="$dir/db/data" --socket="$dir/db/socket" --skip-networking \
    --innodb-buffer-pool-size=1024M --innodb-log-file-size=256M --innodb-lock-wait-timeout=900 --max-allowed-packet=64M \
    </dev/null >"$dir/log/mariadbd.log" 2>&1 &
  echo $! >"$dir/run/mariadbd.pid"
  wait_for mariadb-admin --no-defaults -S "$dir/db/socket" -u root ping
  mariadb --no-defaults -S "$dir/db/socket" -u root -e "create user slurm@localhost identified by 'slurm'; grant all on slurm_acct_db.* to slurm@localhost"
  cat >"$dir/slurmdbd.conf" <<CONF
AuthType=auth/munge
AuthInfo=socket=$dir/munge/socket
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort=$((port + 5))
SlurmUser=root
DebugLevel=error
LogFile=$dir/log/slurmdbd.log
PidFile=$dir/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StoragePort=0
StorageUser=slurm
StoragePass=slurm
CONF
  chmod 600 "$dir/slurmdbd.conf"
  # slurmdbd has no word for a socket; the client library has.
  MYSQL_UNIX_PORT="$dir/db/socket" SLURM_CONF="$dir/slurmdbd.conf" slurmdbd
}
# Nodes, partitions, scheduler. All nodes are on this host, each at a port of its own.
site() {
  if [ -n "$site" ]; then
    awk -v at=$((port + 11)) -v host="$host" '/^NodeName=/ { $0 = $0 " NodeHostname=" host " NodeAddr=127.0.0.1 Port=" at++ } 1' "$site/slurm.conf"
    return
  fi
  cat <<CONF
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=defer,batch_sched_delay=1,sched_min_interval=50000,sched_max_job_start=0,default_queue_depth=10000,bf_interval=60,bf_max_job_test=100,bf_continue,nohold_on_prolog_fail
NodeName=n[1-4] NodeHostname=$host NodeAddr=127.0.0.1 Port=[$((port + 11))-$((port + 14))] Sockets=1 CoresPerSocket=$cpus ThreadsPerCore=1 RealMemory=8000 State=UNKNOWN
PartitionName=batch Nodes=ALL Default=YES MaxTime=INFINITE DefaultTime=60 State=UP
CONF
}
if [ -n "$site" ]; then
  mapfile -t nodes < <(sed -n 's/^NodeName=\([^ ]*\).*/\1/p' "$site/slurm.conf")
  [ ! -s "$site/gres.conf" ] || cp "$site/gres.conf" "$dir/gres.conf"
fi
answers() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# A setting of the site is written once, since commands warn of a second one.
unless_given() {
  [ -n "$site" ] || { cat; return; }
  awk -F= 'NR == FNR { given[$1] = 1; next } !($1 in given)' "$site/slurm.conf" -
}

{
  unless_given <<CONF
ClusterName=peer
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port-$((port + 3))
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CryptoType=crypto/munge
AuthInfo=socket=$dir/munge/socket
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool.%n
TmpFS=$dir/tmp.%n
SlurmctldPidFile=$dir/run/slurmctld.pid
SlurmdPidFile=$dir/run/slurmd.%n.pid
SlurmctldLogFile=$dir/log/slurmctld.log
SlurmdLogFile=$dir/log/slurmd.%n.log
SlurmctldDebug=error
SlurmdDebug=error
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SchedulerType=sched/backfill
PriorityType=priority/basic
JobAcctGatherType=jobacct_gather/none
MaxArraySize=100001
MaxJobCount=300000
MinJobAge=2
MessageTimeout=60
TreeWidth=64
KillWait=5
${accounting:+AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=$((port + 5))
AccountingStoragePass=$dir/munge/socket}
CONF
  site
} >"$dir/slurm.conf"
export SLURM_CONF="$dir/slurm.conf" HWLOC_PLUGINS_PATH=/nonexistent
if [ -n "$accounting" ] && ! alive "$dir/run/slurmdbd.pid"; then
  database
  wait_for answers $((port + 5))
fi
alive "$dir/run/slurmctld.pid" || slurmctld
wait_for scontrol ping
for node in "${nodes[@]}"; do
  mkdir -p "$dir/spool.$node" "$dir/tmp.$node"
  alive "$dir/run/slurmd.$node.pid" || slurmd -N "$node"
done
ready() { [ "$(sinfo -h -N -t idle -o %N | sort -u | wc -l)" = "${#nodes[@]}" ]; }
wait_for ready
echo "SLURM_CONF=$SLURM_CONF"
echo "PIDFILE=$dir/run/slurmctld.pid"
echo "START=SLURM_CONF=$SLURM_CONF $(command -v slurmctld)"
