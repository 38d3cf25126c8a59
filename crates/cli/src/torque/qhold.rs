//! qhold and qrls: keep jobs from starting, and let them go.

use super::arguments::TorqueLine;
use super::{HELP, change, fail, jobs, run_command};
use crate::options::{HelpForm, Opt, Spec, opt};
use muster_model::command::UserCommand;
use std::process::ExitCode;

/// qhold.
pub(crate) static QHOLD: Spec = Spec {
    name: "torque-qhold",
    about: "Keeps jobs that wait from starting, as Torque's qhold does.",
    operands: "JOB...",
    form: HelpForm::Torque,
    options: OPTIONS,
    variables: &[],
    notes: "Holds o and s are an administrator's; only administrators take them away.\n",
};

/// qrls.
pub(crate) static QRLS: Spec = Spec {
    name: "torque-qrls",
    about: "Takes the holds of jobs away, as Torque's qrls does.",
    operands: "JOB...",
    form: HelpForm::Torque,
    options: OPTIONS,
    variables: &[],
    notes: "",
};

static OPTIONS: &[Opt] = &[
    opt(
        "h",
        "u|o|s|n|a",
        "kind of the hold: user's (default), operator's, system's, none, all",
    ),
    opt("t", "tasks", "tasks of the arrays: 1-3,7"),
    HELP[0],
    HELP[1],
];

/// Runs qhold.
pub(crate) fn hold_main(args: &[String]) -> ExitCode {
    run_command(&QHOLD, args, |parsed| run("qhold", parsed, true))
}

/// Runs qrls.
pub(crate) fn release_main(args: &[String]) -> ExitCode {
    run_command(&QRLS, args, |parsed| run("qrls", parsed, false))
}

/// Whether letters for holds name one, and whether one that an administrator takes away.
///
/// # Errors
/// A letter that names none.
pub(super) fn kinds(letters: &str) -> Result<(bool, bool), String> {
    match letters.chars().find(|c| !"uosna".contains(*c)) {
        Some(c) => Err(format!("-h {letters}: '{c}' is not one of u, o, s, n, a")),
        None => {
            let is_any = letters.contains(['u', 'o', 's', 'a']);
            let is_own = !letters.contains(['o', 's', 'a']);
            Ok((is_any, is_own))
        }
    }
}

fn run(name: &'static str, parsed: &TorqueLine, hold: bool) -> Result<ExitCode, ExitCode> {
    let letters = parsed.last("h").unwrap_or("u");
    let (is_any, user) = kinds(letters).map_err(|why| fail(name, &why, 2))?;
    let named = jobs::named(name, &parsed.operands, parsed.last("t"))?;
    if !is_any {
        return Ok(ExitCode::SUCCESS);
    }
    change::each(name, "Error", named, |target| match hold {
        true => UserCommand::Hold { target, user },
        false => UserCommand::Release { target },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_of_holds() {
        assert_eq!(kinds("u"), Ok((true, true)));
        assert_eq!(kinds("us"), Ok((true, false)));
        assert_eq!(kinds("n"), Ok((false, true)));
        assert_eq!(
            kinds("x"),
            Err("-h x: 'x' is not one of u, o, s, n, a".to_owned())
        );
    }
}
