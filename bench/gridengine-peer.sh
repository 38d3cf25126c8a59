#!/bin/bash
# gridengine-peer.sh up DIR: starts a private Grid Engine of one host in the new directory DIR, from the programs of Debian's packages
# gridengine-master, gridengine-exec and gridengine-client, and prints the variables by which its commands reach it. Exit status 3: it
# is not installed. gridengine-peer.sh down DIR: ends it. Nothing in /etc and /var is touched. Queue all.q has 4 slots on this host,
# with environments smp and mpi and the complexes gpu (of hosts, 2), lic (of the cluster, 3) and bigmem (of hosts); jobs have numbers
# from 700001. Runs as root; jobs of root run too.
set -euo pipefail
[ $# = 2 ] || { sed -n '2,7p' "$0" >&2; exit 2; }
verb=$1 dir=$(readlink -m "$2") programs=/usr/lib/gridengine shared=/usr/share/gridengine
host=$(hostname)
export SGE_ROOT=$dir SGE_CELL=default SGE_ARCH=lx-amd64 SGE_CLUSTER_NAME=peer
export SGE_QMASTER_PORT=${SGE_QMASTER_PORT:-16644} SGE_EXECD_PORT=${SGE_EXECD_PORT:-16645} PATH=$programs:$PATH

pids() { cat "$dir"/spool/qmaster/qmaster.pid "$dir"/spool/execd/*/execd.pid 2>/dev/null || true; }
if [ "$verb" = down ]; then
  running=$(pids)
  timeout 10 qconf -ke all >/dev/null 2>&1 || true
  timeout 10 qconf -km >/dev/null 2>&1 || true
  for pid in $running; do
    for _ in $(seq 100); do kill -0 "$pid" 2>/dev/null || break; sleep .1; done
    kill -9 "$pid" 2>/dev/null || true
  done
  rm -rf "$dir"
  exit
fi
[ -x /usr/sbin/sge_qmaster ] && [ -x $programs/qsub ] || exit 3
mkdir -p "$dir"/{bin,lib,utilbin,default/common,spool/qmaster/job_scripts,spool/execd}
chmod 755 "$dir"
for part in bin lib utilbin; do ln -sfn $programs "$dir/$part/$SGE_ARCH"; done
ln -sfn $shared/util "$dir/util"
admin=root; id sgeadmin >/dev/null 2>&1 && admin=sgeadmin
spool="$dir/default/common;$dir/spool/qmaster"
cat >"$dir/default/common/bootstrap" <<END
admin_user $admin
default_domain none
ignore_fqdn false
spooling_method classic
spooling_lib libspoolc
spooling_params $spool
binary_path $programs
qmaster_spool_dir $dir/spool/qmaster
security_mode none
listener_threads 2
worker_threads 2
scheduler_threads 1
END
echo "$host" >"$dir/default/common/act_qmaster"
echo peer >"$dir/default/common/cluster_name"
# The address of the loopback has another name, by which clients would be refused.
echo "$host localhost" >"$dir/default/common/host_aliases"
echo 700000 >"$dir/spool/qmaster/jobseqnum"
sed -e "s#^execd_spool_dir.*#execd_spool_dir $dir/spool/execd#; s#^min_.id.*#min_uid 0#; s#^administrator_mail.*#administrator_mail none#" \
  -e "s#^shell_start_mode.*#shell_start_mode unix_behavior#; s#^gid_range.*#gid_range 20000-20200#; s#^load_report_time.*#load_report_time 00:00:05#" \
  -e "s#^reporting_params.*#reporting_params accounting=true reporting=false flush_time=00:00:01 joblog=false sharelog=00:00:00#" \
  $shared/default-configuration | awk '$1 == "min_uid" && seen++ { $1 = "min_gid" } { print }' >"$dir/conf"
chown -R "$admin" "$dir"
as() { setpriv --reuid "$admin" --regid "$(id -g "$admin")" --clear-groups "$@"; }
{
  as $programs/spoolinit classic libspoolc "$spool" init
  as $programs/spooldefaults configuration "$dir/conf"
  as $programs/spooldefaults complexes $shared/util/resources/centry
  as $programs/spooldefaults usersets $shared/util/resources/usersets
  as $programs/spooldefaults managers "$admin" root
  cd "$dir"
  /usr/sbin/sge_qmaster
  for _ in $(seq 100); do qconf -sh && break; sleep .1; done
  qconf -ah "$host"; qconf -as "$host"
  /usr/sbin/sge_execd
  for _ in $(seq 100); do qconf -sel | grep -qx "$host" && break; sleep .1; done
  printf 'group_name @allhosts\nhostlist %s\n' "$host" >part; qconf -Ahgrp part
  rules=(smp '$pe_slots' mpi '$fill_up')
  for at in 0 2; do
    printf '%s\n' "pe_name ${rules[at]}" 'slots 999' 'user_lists NONE' 'xuser_lists NONE' 'start_proc_args NONE' 'stop_proc_args NONE' \
      "allocation_rule ${rules[at + 1]}" 'control_slaves TRUE' 'job_is_first_task TRUE' 'urgency_slots min' 'accounting_summary TRUE' \
      'qsort_args NONE' >part
    qconf -Ap part
  done
  qconf -sc >part
  printf '%s\n' 'gpu gpu INT <= YES YES 0 0' 'lic lic INT <= YES JOB 0 0' 'bigmem bigmem BOOL == YES NO 0 0' >>part
  qconf -Mc part
  qconf -mattr exechost complex_values gpu=2,bigmem=TRUE "$host"
  printf 'hostname global\nload_scaling NONE\ncomplex_values lic=3\nuser_lists NONE\nxuser_lists NONE\nprojects NONE\nxprojects NONE\nusage_scaling NONE\nreport_variables NONE\n' >part
  qconf -Me part
  cat >part <<END
qname all.q
hostlist @allhosts
seq_no 0
load_thresholds NONE
suspend_thresholds NONE
nsuspend 1
suspend_interval 00:05:00
priority 0
min_cpu_interval 00:05:00
processors UNDEFINED
qtype BATCH INTERACTIVE
ckpt_list NONE
pe_list smp mpi
rerun FALSE
slots 4
tmpdir /tmp
shell /bin/sh
prolog NONE
epilog NONE
shell_start_mode unix_behavior
starter_method NONE
suspend_method NONE
resume_method NONE
terminate_method NONE
notify 00:00:60
owner_list NONE
user_lists NONE
xuser_lists NONE
subordinate_list NONE
complex_values NONE
projects NONE
xprojects NONE
calendar NONE
initial_state default
$(for limit in rt cpu fsize data stack core rss vmem; do printf 's_%s INFINITY\nh_%s INFINITY\n' $limit $limit; done)
END
  qconf -Aq part
  for _ in $(seq 200); do qstat -f | grep -q "lx-amd64 *$" && break; sleep .1; done
} >"$dir/up.log" 2>&1 </dev/null
for name in SGE_ROOT SGE_CELL SGE_ARCH SGE_QMASTER_PORT SGE_EXECD_PORT SGE_CLUSTER_NAME; do echo "$name=${!name}"; done
