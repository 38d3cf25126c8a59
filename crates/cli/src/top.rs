//! `muster top`: the cluster on a terminal, as it changes: the queue, one's own jobs, nodes, events, graphs. This
//! module has the command and the requests of keys to the controller; `gather` asks for the lists, `page` is their
//! state, `view` draws it.

mod clean;
mod gather;
mod page;
mod view;

use crate::connect::Client;
use crate::listing::{Failure, failed_call};
use crate::options::{HelpForm, Spec, flag, opt};
use crate::{logs, why};
use gather::Update;
use muster_model::command::{JobSelection, JobTarget, Reply, UserCommand};
use page::{Deed, Page, PageOutput};
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// muster top.
pub(crate) static SPEC: Spec = Spec {
    name: "muster-top",
    about: "Shows the cluster on a terminal as it changes: queue, own jobs, nodes, events.",
    operands: "",
    form: HelpForm::Options,
    options: &[
        flag("help", "print this help"),
        opt(
            "interval",
            "SECONDS",
            "longest time between two requests, also if nothing has changed (default: 10)",
        )
        .short('i'),
        flag("usage", "print a short summary"),
    ],
    variables: &[],
    notes: "\
The controller says what has changed, and is asked for the lists then. Keys: Tab and 1 to 4 choose a list, arrows (j, k), PgUp, PgDn, \
Home and End a line; w says why a job waits, l shows the end of its output, c cancels it, h holds it or releases it, q ends. \
It shows what squeue and sinfo show to you, and asks with your rights. It needs 80 columns and 24 lines; with fewer, lines are cut.",
};

/// The longest interval, seconds.
const INTERVAL_MAX_S: u64 = 3600;
/// Time within which a key is seen, and a change is drawn.
const LOOK: Duration = Duration::from_millis(100);
/// Interval of updates of graphs and running times.
const TICK: Duration = Duration::from_secs(1);
/// Lines of a job's output.
const LOG_LINES: usize = 200;

/// Runs it.
pub(crate) fn run(args: &[String]) -> Result<ExitCode, Failure> {
    let parsed = SPEC.parse(args).map_err(Failure::new)?;
    let mut interval = Duration::from_secs(10);
    for (name, value) in &parsed.options {
        match *name {
            "help" => return Ok(shown(&SPEC.help())),
            "usage" => return Ok(shown(&SPEC.usage())),
            _ => interval = read_interval(value.as_deref().unwrap_or_default())?,
        }
    }
    if let Some(word) = parsed.operands.first() {
        return Err(Failure::new(format!(
            "muster top: '{word}' is one word too many\n{}",
            SPEC.usage().trim_end()
        )));
    }
    if !(io::stdout().is_terminal() && io::stdin().is_terminal()) {
        return Err(Failure::new(
            "muster top: this is not a terminal; squeue and sinfo print lists",
        ));
    }
    let client = Client::connect().map_err(failed_call("muster top"))?;
    let page = Page::new(&client.endpoint.cluster);
    let updates = gather::start(interval);
    let mut terminal = ratatui::try_init()
        .map_err(|e| Failure::new(format!("muster top: the terminal cannot be used: {e}")))?;
    let ended = follow(&mut terminal, page, &updates);
    ratatui::restore();
    ended.map_err(|e| Failure::new(format!("muster top: {e}")))?;
    Ok(ExitCode::SUCCESS)
}

fn shown(text: &str) -> ExitCode {
    crate::listing::print(text);
    ExitCode::SUCCESS
}

fn read_interval(text: &str) -> Result<Duration, Failure> {
    match text.parse() {
        Ok(seconds @ 1..=INTERVAL_MAX_S) => Ok(Duration::from_secs(seconds)),
        _ => Err(Failure::new(format!(
            "muster top: --interval={text}: seconds from 1 to {INTERVAL_MAX_S} are expected"
        ))),
    }
}

/// Shows what comes, until a key ends it.
fn follow(
    terminal: &mut ratatui::DefaultTerminal,
    mut page: Page,
    updates: &Receiver<Update>,
) -> io::Result<()> {
    let mut ticked = Instant::now();
    let mut is_new = true;
    loop {
        while let Ok(update) = updates.try_recv() {
            page.take(update);
            is_new = true;
        }
        if ticked.elapsed() >= TICK {
            ticked += TICK;
            page.tick();
            if let Some(job) = page.followed_log() {
                page.show(log_of(&job));
            }
            is_new = true;
        }
        if is_new {
            terminal.draw(|frame| view::draw(frame, &mut page))?;
            is_new = false;
        }
        if !event::poll(LOOK)? {
            continue;
        }
        is_new = true;
        let Event::Key(key) = event::read()? else {
            continue;
        };
        if key.kind != KeyEventKind::Press {
            continue;
        }
        match page.press(key) {
            None => {}
            Some(Deed::Quit) => return Ok(()),
            Some(deed) => {
                let shown = carry_out(deed);
                page.show(shown);
            }
        }
    }
}

/// Does what a key asks for.
fn carry_out(deed: Deed) -> PageOutput {
    let say = |failure: &dyn std::fmt::Display| PageOutput::Note(failure.to_string());
    match deed {
        Deed::Quit => PageOutput::Note(String::new()),
        Deed::Why(job) => {
            let text = Client::connect().and_then(|mut client| why::text_of(&mut client, job.id));
            match text {
                Ok(text) => PageOutput::Text {
                    title: format!("Why job {} waits", job.name),
                    text,
                    log_of: None,
                },
                Err(error) => say(&error),
            }
        }
        Deed::Log(name) => log_of(&name),
        Deed::Cancel(target) => {
            let selection = JobSelection {
                targets: vec![target],
                ..JobSelection::default()
            };
            done(
                UserCommand::Cancel { selection },
                "The job was asked to end.",
            )
        }
        Deed::Hold(target) => {
            let user = false;
            done(UserCommand::Hold { target, user }, "The job is held.")
        }
        Deed::Release(target) => done(UserCommand::Release { target }, "The job was released."),
    }
}

fn done(command: UserCommand, what: &str) -> PageOutput {
    let reply = Client::connect().and_then(|mut client| client.command(command));
    PageOutput::Note(match reply {
        Ok(Reply::Done { refused, .. }) => match refused.first() {
            Some((job, refusal)) => format!("{job}: {refusal}"),
            None => what.to_owned(),
        },
        Ok(_) => what.to_owned(),
        Err(error) => error.to_string(),
    })
}

/// The end of a job's output.
fn log_of(name: &str) -> PageOutput {
    match logs::end_of(name, LOG_LINES) {
        Ok(end) => PageOutput::Text {
            title: end.path,
            text: end.text,
            log_of: Some(name.to_owned()),
        },
        Err(why) => PageOutput::Note(why),
    }
}

/// The target that stands for a record: of an array that waits, the tasks that wait.
fn target_of(line: &gather::JobLine) -> JobTarget {
    JobTarget {
        job: line.id,
        tasks: line.indices.clone(),
        component: None,
    }
}

#[cfg(test)]
mod tests;
