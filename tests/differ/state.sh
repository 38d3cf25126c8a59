# Each job has a priority of its own: the order of equal ones is nobody's promise. The state in which lines run, the same on both clusters. Run by root in a directory of its own; writes `ids`: what to call
# which job. A line finds these as variables. Nodes are named where the choice is not what is compared.
exec 2>&1
set -u
account() { sacctmgr -i "$@" >/dev/null 2>&1 || echo "failed: sacctmgr -i $*"; }
as() { setpriv --reuid="$1" --regid="$(id -g "$1")" --clear-groups env USER="$1" LOGNAME="$1" HOME=/ "${@:2}"; }
job() { # NAME OPTIONS...: a job of nobody
  local id; id=$(as nobody sbatch --parsable -D / -o /dev/null -J "$1" "${@:2}") || { echo "no job $1"; exit 1; }
  echo "$1=${id%%;*}" >>ids; declare -g "$1=${id%%;*}"
}
meetings=0
meet() { # waits until the other cluster is as far, so that times are close to each other
  meetings=$((meetings + 1)); : >"../$SIDE.$meetings"
  for _ in $(seq 600); do [ -e "../$OTHER_SIDE.$meetings" ] && return; sleep .05; done
}
wait_until() { # STATE JOB...
  for job in "${@:2}"; do
    for _ in $(seq 300); do [ "$(squeue -h -t all -j "$job" -o %T | sort -u)" = "$1" ] && continue 2; sleep .1; done
    echo "job $job is not $1: $(squeue -h -t all -j "$job" -o '%T %r')"; exit 1
  done
}
sacctmgr -i add cluster peer >/dev/null 2>&1
account add account phys Description=physics Organization=uni
account add account optics parent=phys Description=optics Organization=uni fairshare=3
account add account chem Description=chemistry Organization=uni GrpJobs=50
account add qos high Priority=100 Description=high
account add qos low Flags=DenyOnLimit MaxTRESPerUser=cpu=4 MaxWall=10
account add user nobody Account=phys,chem DefaultAccount=phys
account add user daemon Account=chem MaxJobs=20
account add user games Account=optics AdminLevel=Operator
account modify user nobody set qos=normal,high,low
account add coordinator account=chem names=daemon
: >ids; chmod 644 ids
forever='exec sleep 3600'
meet
job good --nice=10 -w n1 --comment=fine --wrap true
job fail --nice=20 -w n1 --wrap 'exit 7'
job kild --nice=30 -w n1 --wrap 'kill -9 $$'
wait_until COMPLETED "$good"; wait_until FAILED "$fail" "$kild"
job canc --nice=40 -H --wrap true; as nobody scancel "$canc"
meet
job runs --nice=50 -w n1,n2 -N2 -n4 -t 1:00:00 --comment=hello --mem=200 --wrap "$forever"
job gpus --nice=60 -w n2 --gres=gpu:1 -p long --wrap "$forever"
job matl --nice=70 -w n3 -L matlab:2 -q high --wrap "$forever"
job step --nice=80 -w n1 -n2 --mem=100 --wrap 'srun -n2 sleep 3600'
wait_until RUNNING "$runs" "$gpus" "$matl" "$step"
meet
job arry --nice=90 -w n3 --array=1-3 -t 45 --wrap "$forever"
wait_until RUNNING "$arry"
meet
job held --nice=100 -H -t 10 -n2 --mem=100 --comment='two words' --wrap true
job harr --nice=110 -H --array=0-9:3%2 -t 5 --wrap true
job depd --nice=120 -d "afterany:$runs" --wrap true
job futu --nice=130 -b now+1hour --wrap true
job larg --nice=140 -N2 -w n1,n2 --exclusive -t 2-0 --wrap true
job neve --nice=150 -d "afterok:$fail" --wrap true
job qlow --nice=160 -q low -n4 -t 5 -A chem -H --wrap true
job hete --nice=170 -H -n1 : --nice=400 -n2 -p long --wrap true
wait_until PENDING "$larg" "$depd"
oths=$(as daemon sbatch --parsable -D / -o /dev/null -J oths --nice=300 -w n5 -n3 --wrap "$forever"); echo "oths=$oths" >>ids
ohld=$(as daemon sbatch --parsable -D / -o /dev/null -J ohld --nice=310 -H --wrap true); echo "ohld=$ohld" >>ids
wait_until RUNNING "$oths"
scontrol update nodename=n4 state=drain reason='disk broken'
scontrol create reservation reservationname=maint starttime=now+2hours duration=60 users=root nodes=n6 flags=maint >/dev/null
scontrol create reservation reservationname=users starttime=now+5hours duration=2:00:00 accounts=phys nodes=n3 >/dev/null
job rsvd -H --nice=180 --reservation=users --wrap true
# Accounting follows a moment later.
for _ in $(seq 300); do
  [ -n "$(sacct -n -X -j "$rsvd")" ] && sacct -n -X -a -o jobname,state | grep -q 'oths *RUNNING' && break; sleep .1
done
# Tasks of arrays have numbers that follow from when they started.
squeue -h -r -t all -o '%A %F %K' | while read -r own array task; do
  [ "$own" = "$array" ] || sed -n "s/^\(...\).=$array\$/\1$task=$own/p" ids
done >tasks
cat tasks >>ids
