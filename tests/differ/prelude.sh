# What lines can call. Each takes away what it made.
id_in() { grep -oE '7[01][0-9]{4}' <<<"$1" | head -1; }
submit() { # OPTIONS...: a held job, as scontrol shows it
  local out id status; out=$(sbatch -H -D /tmp -o /dev/null "$@" --wrap true 2>&1); status=$?; echo "$out"; id=
  # A refusal may name another job, which stays.
  [ "$status" != 0 ] || id=$(id_in "$out")
  [ -z "$id" ] || { scontrol show job "$id"; scancel "$id"; }
  return "$status"
}
submit_as() { # SCRIPT OPTIONS...: the same with a script of its own
  local out id status; printf "$1" >script.sh; out=$(sbatch -H -o /dev/null "${@:2}" script.sh 2>&1); status=$?; echo "$out"; id=
  # A refusal may name another job, which stays.
  [ "$status" != 0 ] || id=$(id_in "$out")
  [ -z "$id" ] || { scontrol show job "$id"; scancel "$id"; }
  return "$status"
}
change() { # FIELD=VALUE...: what an update makes of a held job
  local id status; id=$(sbatch -H --parsable -D /tmp -o /dev/null -J changed -t 20 -n2 --mem=100 --wrap true) || return
  scontrol update jobid="$id" "$@"; status=$?; scontrol show job "$id"; scancel "$id"
  return "$status"
}
act() { # COMMAND...: a command on a held job, whose number it gets last
  local id status; id=$(sbatch -H --parsable -D /tmp -o /dev/null -J acted -t 20 --wrap true) || return
  "$@" "$id"; status=$?; squeue -h -t all -j "$id" -o '%T %r %p %Q'; scancel "$id"
  return "$status"
}
reserve() { # FIELD=VALUE...: a reservation (of root)
  local status; scontrol create reservation reservationname=res1 "$@"; status=$?
  [ "$status" != 0 ] || { scontrol show reservation res1; scontrol delete reservationname=res1; }
  return "$status"
}
qos() { # FIELD=VALUE...: a QOS (of root)
  local status; sacctmgr -i add qos qos1 "$@"; status=$?
  sacctmgr -P show qos qos1 format=name,priority,flags,gracetime,grptres,grptresmins,grptresrunmins,grpjobs,grpsubmit,grpwall,maxtres,maxtrespernode,maxtresmins,maxwall,maxtrespu,maxjobspu,maxsubmitpu,maxtrespa,maxjobspa,maxsubmitpa,mintres,preempt,preemptmode,usagefactor
  sacctmgr -i delete qos qos1 >/dev/null 2>&1; return "$status"
}
assoc() { # FIELD=VALUE...: an account with these limits (of root)
  local status; sacctmgr -i add account acct1 "$@"; status=$?
  sacctmgr -P show assoc where account=acct1 format=cluster,account,user,share,grptres,grptresmins,grptresrunmins,grpjobs,grpsubmit,grpwall,maxtres,maxtrespernode,maxtresmins,maxjobs,maxsubmit,maxwall,priority,qos,defaultqos
  sacctmgr -i delete account acct1 >/dev/null 2>&1; return "$status"
}
node() { # FIELD=VALUE...: an update of n6, and back
  # A star after a state says that slurmd has not answered yet.
  local status field; scontrol update nodename=n6 "$@"; status=$?; sinfo -h -n n6 -p debug -o '%T %E %f %b %w %G %D' | tr -d '*'
  for field in state=resume features=f2,ht activefeatures=f2,ht weight=2 comment= extra=; do scontrol update nodename=n6 "$field"; done >/dev/null 2>&1
  return "$status"
}
partition() { # FIELD=VALUE...: a partition (of root)
  local status; scontrol create partitionname=part1 "$@"; status=$?
  [ "$status" != 0 ] || scontrol show partition part1
  # Slurm makes some of those that it refuses.
  scontrol delete partitionname=part1 >/dev/null 2>&1
  return "$status"
}
