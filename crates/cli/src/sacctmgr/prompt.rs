//! The prompt: commands from standard input, one a line.

use super::commands;
use super::console::ConsoleAnswer;
use super::session::Invocation;
use super::words::split_line;
use crate::listing::Failure;

const PROMPT: &str = "sacctmgr: ";

/// Reads and carries out commands until the input or `quit` ends it. The exit status is that of the worst command.
pub(super) fn run(session: &mut Invocation<'_>) -> Result<(), Failure> {
    let mut failed = false;
    let mut last: Vec<String> = Vec::new();
    let shows_input = !nix::unistd::isatty(std::io::stdin()).unwrap_or(false);
    while !session.is_over {
        session.console.say(PROMPT);
        let line = match session.console.answer(None) {
            ConsoleAnswer::Line(line) => line,
            ConsoleAnswer::End | ConsoleAnswer::Late => {
                session.console.say("\n");
                break;
            }
        };
        let line = line.trim_end_matches('\n');
        if shows_input {
            session.console.say(&format!("{line}\n"));
        }
        if line.trim_start().starts_with('#') {
            continue;
        }
        let mut words = split_line(line);
        if words == ["!!"] {
            words.clone_from(&last);
        }
        if let Err(failure) = commands::execute(session, &words) {
            failed = true;
            let text = failure.to_string();
            if !text.is_empty() {
                session.console.complain(&text);
            }
        }
        last = words;
    }
    match failed {
        true => Err(Failure::silent()),
        false => Ok(()),
    }
}
