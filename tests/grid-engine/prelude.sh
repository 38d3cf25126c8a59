# What lines can call. Each takes away what it made.
id_in() { grep -oE '70[0-9]{4}' <<<"$1" | head -1; }
shown() { # JOB: what a job of the line asks for
  # Grid Engine adds a variable, and has the host before paths.
  qstat -j "$1" | sed -E 's/(,TERM=NONE|TERM=NONE,)//; s/[A-Za-z0-9.-]*:(\/dev\/null)/\1/' | grep -vE '^(env_list: *TERM=NONE$|job_args:)' \
    | grep -E '^(job_name|account|cwd|merge|hard|soft|mail_|notify|jobshare|stdout|stderr|stdin|env_list|script_file|parallel|hard_|soft_|job-array|priority|restart|reserve|binding:|job_type|execution_time|project|context|task_concurrency|shell_list)'
}
submit() { # OPTIONS... [COMMAND...]: a held job, and what it asks for
  local out id status; out=$(qsub -h -o /dev/null -j y "$@" 2>&1); status=$?; echo "$out" | grep .; id=
  [ "$status" != 0 ] || id=$(id_in "$out")
  [ -z "$id" ] || { shown "$id"; qdel "$id" >/dev/null; }
  return "$status"
}
made() { submit -b y -N made "$@" true; } # OPTIONS...: of a command
scripted() { # TEXT OPTIONS...: of a script of its own
  printf '#!/bin/sh\n%b\n' "$1" >script.sh; submit -N made "${@:2}" script.sh
}
change() { # OPTIONS...: what qalter makes of a held job
  local id status; id=$(qsub -terse -h -b y -o /dev/null -j y -N changed -l h_rt=60 sleep 1) || return
  qalter "$@" "$id"; status=$?; shown "$id"; qdel "$id" >/dev/null; return "$status"
}
act() { # COMMAND...: a command on a held job, whose number it gets last
  local id status; id=$(qsub -terse -h -b y -o /dev/null -j y -a 203001010000 -N acted sleep 1) || return
  "$@" "$id"; status=$?; qstat -u "$USER" | awk 'NR > 2 {print $3, $5}'; qdel "$id" >/dev/null 2>&1; return "$status"
}
tasks() { "$1" "${@:3}" -t "$2"; } # COMMAND TASKS JOB
array() { # COMMAND...: a command on a held array of three tasks
  local id status; id=$(qsub -terse -h -t 1-3 -b y -o /dev/null -j y -a 203001010000 -N many sleep 1); id=${id%%.*}
  "$@" "$id"; status=$?; qstat -u "$USER" | awk 'NR > 2 {print $3, $5, $NF}'; qdel "$id" >/dev/null 2>&1; return "$status"
}
run() { # OPTIONS... : a job that is waited for, and its output
  rm -f out; qsub -cwd -sync y -terse -o "$PWD/out" -j y "$@" | tail -1; local status=${PIPESTATUS[0]}; cat out 2>/dev/null; return "$status"
}
object() { # VERB TEXT ARGUMENTS...: qconf with a file
  printf "$2" >object; qconf "$1" object "${@:3}"
}
