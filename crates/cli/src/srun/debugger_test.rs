//! `srun --debugger-test`: each task prints its node and process id, and stops before its program begins, as a
//! task does for a parallel debugger. It goes on by SIGCONT.

use muster_proto::step::StepSpec;

/// A shell that becomes the program, which is `$0` with its arguments.
const STOPPED: &str = r#"echo "task:$SLURM_PROCID, host:$SLURMD_NODENAME, pid:$$, executable:$0" >&2; kill -STOP $$; exec "$0" "$@""#;

/// Has the tasks of a step stop before their programs.
pub(super) fn stop_tasks(spec: &mut StepSpec) {
    let shell = ["/bin/sh", "-c", STOPPED].map(str::to_owned);
    spec.argv.splice(0..0, shell);
    for (_, command) in &mut spec.multi_prog {
        *command = format!("/bin/sh -c '{STOPPED}' {command}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_follows_the_shell_that_stops() {
        let mut spec = StepSpec {
            argv: vec!["prog".to_owned(), "a b".to_owned()],
            multi_prog: vec![("0".to_owned(), "prog %t".to_owned())],
            ..StepSpec::default()
        };
        stop_tasks(&mut spec);
        assert_eq!(spec.argv[3..], ["prog", "a b"]);
        assert!(spec.multi_prog[0].1.ends_with("\"$@\"' prog %t"));
        assert!(!STOPPED.contains(['\'', '%']), "of_task reads it");
    }
}
