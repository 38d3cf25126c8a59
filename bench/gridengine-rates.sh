#!/bin/bash
# gridengine-rates.sh MUSTER DIR [PEER]: rates of the Grid Engine commands of the program MUSTER on a private cluster in the new
# directory DIR, beside those of sbatch in the same run, and beside a Grid Engine that runs on this host: PEER is a file of shell
# variables (SGE_ROOT, SGE_QMASTER_PORT, ...) by which its commands, in PEER_BIN (default /usr/bin), reach it; they are called as
# PEER_USER if that is set. A line for each figure, with its bar where there is one. Run it as root for DIR's sake, on a machine that
# does nothing else, with a release build; with another build the lines say how the parts compare and no more.
#   JOBS=500      submissions of each kind          TASKS=2000    tasks of the array
#   WAITING=10000 jobs that listings list           ROUNDS=5      runs of which the median counts
#   SUBMITTERS=8  that submit at the same time
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,10p' "$0" >&2; exit 2; }
muster=$(readlink -f "$1") dir=$(readlink -m "$2") peer=${3:+$(readlink -f "$3")}
JOBS=${JOBS:-500} TASKS=${TASKS:-2000} WAITING=${WAITING:-10000} ROUNDS=${ROUNDS:-5} SUBMITTERS=${SUBMITTERS:-8}
mkdir -p "$dir" && chmod 755 "$dir"
export MUSTER_HOME=$dir/home
mkdir -p "$MUSTER_HOME" && chmod 755 "$MUSTER_HOME"
"$muster" up -n 1 -c 8 >"$dir/up.log" 2>&1
trap '"$muster" down >>"$dir/up.log" 2>&1 || true' EXIT
eval "$("$muster" env)"
cd "$dir"
# Jobs that have ended count until they are purged.
printf 'MaxArraySize=%d\nMaxJobCount=%d\n' "$((TASKS + 1))" "$((2 * JOBS * ROUNDS + TASKS + WAITING + 1000))" >>"$SLURM_CONF"
scontrol reconfigure

now() { date +%s%N; }
# Milliseconds that a command takes, with a fraction.
took() { local from; from=$(now); "$@" >/dev/null; echo $(($(now) - from)) | awk '{ printf "%.2f\n", $1 / 1e6 }'; }
# The middle one of so many runs.
median() { for _ in $(seq "$ROUNDS"); do took "$@"; done | sort -n | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'; }
per_second() { awk -v n="$1" -v ms="$2" 'BEGIN { printf "%.1f\n", n * 1000 / ms }'; }
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f\n", a / b }'; }
# name, value, unit, what is wanted: at least (ge) or at most (le) a bar.
say() {
  local verdict=
  if [ $# -ge 5 ]; then
    verdict=$(awk -v v="$2" -v how="$4" -v bar="$5" 'BEGIN { ok = how == "ge" ? v >= bar : v <= bar; print (ok ? "met" : "NOT MET") ", " (how == "ge" ? "at least " : "at most ") bar }')
    verdict=" ($verdict)"
  fi
  printf '%-52s %10s %s%s\n' "$1" "$2" "$3" "$verdict"
}

sbatches() { for _ in $(seq "$JOBS"); do sbatch -H -o /dev/null --wrap true; done; }
qsubs() { for _ in $(seq "$JOBS"); do qsub -h -terse -b y -shell n -o /dev/null -j y /bin/true; done; }
# The same number of jobs by so many submitters at a time.
at_once() { seq "$JOBS" | xargs -P "$SUBMITTERS" -n $((JOBS / SUBMITTERS)) sh -c 'for i; do qsub -h -terse -b y -shell n -o /dev/null -j y /bin/true; done' at_once; }
empty() { while [ -n "$(qstat -u '*')" ]; do sleep .05; done; }
array() { qsub -terse -t "1-$TASKS" -b y -shell n -o /dev/null -j y /bin/true; empty; }
clear_jobs() { scancel --user="$(id -un)" >/dev/null 2>&1 || true; empty; }

# A command with the peer's variables alone, so that it does not reach Muster.
at_peer() {
  local run=(env -i HOME=/tmp PATH="${PEER_BIN:-/usr/bin}:/bin" bash -c "set -a; . '$peer'; cd /tmp; $*")
  if [ -n "${PEER_USER:-}" ]; then
    run=(setpriv --reuid "$PEER_USER" --regid "$PEER_USER" --init-groups "${run[@]}")
  fi
  "${run[@]}"
}
peer_qsubs() { at_peer "for i in \$(seq $JOBS); do qsub -h -terse -b y -shell n -o /dev/null -j y /bin/true; done"; }
peer_at_once() {
  at_peer "seq $JOBS | xargs -P $SUBMITTERS -n $((JOBS / SUBMITTERS)) sh -c 'for i; do qsub -h -terse -b y -shell n -o /dev/null -j y /bin/true; done' at_once"
}
peer_array() {
  at_peer "qsub -terse -t 1-$TASKS -b y -shell n -o /dev/null -j y /bin/true; while [ -n \"\$(qstat -u '*')\" ]; do sleep .05; done"
}

# In turns, so that what else the machine does meets both.
s=() q=()
for _ in $(seq "$ROUNDS"); do
  s+=("$(took sbatches)"); clear_jobs
  q+=("$(took qsubs)"); clear_jobs
done
middle() { printf '%s\n' "$@" | sort -n | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'; }
sbatch_rate=$(per_second "$JOBS" "$(middle "${s[@]}")") qsub_rate=$(per_second "$JOBS" "$(middle "${q[@]}")")
say "sbatch, one after the other" "$sbatch_rate" jobs/s
say "qsub, one after the other" "$qsub_rate" jobs/s
say "qsub, of sbatch" "$(ratio "$qsub_rate" "$sbatch_rate")" "" ge 0.5
p=()
for _ in $(seq "$ROUNDS"); do p+=("$(took at_once)"); clear_jobs; done
once_rate=$(per_second "$JOBS" "$(middle "${p[@]}")")
say "qsub, $SUBMITTERS at a time" "$once_rate" jobs/s
own_array=$(took array)
say "array of $TASKS, end to end" "$own_array" ms

if [ -n "$peer" ]; then
  rate=$(per_second "$JOBS" "$(took peer_qsubs)")
  at_peer "qdel -u '*'" >/dev/null || true
  say "Grid Engine: qsub, one after the other" "$rate" jobs/s
  say "qsub, of Grid Engine's" "$(ratio "$qsub_rate" "$rate")" "" ge 5
  rate=$(per_second "$JOBS" "$(took peer_at_once)")
  at_peer "qdel -u '*'" >/dev/null || true
  say "Grid Engine: qsub, $SUBMITTERS at a time" "$rate" jobs/s
  say "qsub $SUBMITTERS at a time, of Grid Engine's" "$(ratio "$once_rate" "$rate")" "" ge 5
  theirs=$(took peer_array)
  say "Grid Engine: array of $TASKS, end to end" "$theirs" ms
  say "Grid Engine's time for the array, of Muster's" "$(ratio "$theirs" "$own_array")" "" ge 20
fi

# Jobs of their own, and no array: each is a line.
for _ in $(seq "$WAITING"); do echo 'sbatch -H -o /dev/null --wrap true'; done | xargs -P 8 -I{} sh -c '{} >/dev/null'
listed=$(qstat -u '*' | tail -n +3 | wc -l)
[ "$listed" = "$WAITING" ] || { echo "gridengine-rates: $listed of $WAITING jobs are listed" >&2; exit 1; }
say "qstat of $WAITING jobs" "$(median qstat -u '*')" ms le 20
say "qstat -xml of $WAITING jobs" "$(median qstat -u '*' -xml)" ms le 150
