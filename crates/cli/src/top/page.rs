//! State of the terminal: lists, the chosen line, requests of keys. It knows neither the terminal nor the controller.

use super::clean;
use super::gather::{JobLine, Lists, NodeLine, Update};
use super::target_of;
use muster_model::command::JobTarget;
use muster_model::ids::JobId;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::collections::VecDeque;

/// Lines of events that are kept.
const EVENTS_MAX: usize = 1000;
/// Seconds that graphs go back.
pub(super) const HISTORY_MAX: usize = 300;
/// Lines by which PgUp and PgDn go on.
const PAGE_LINES: usize = 15;

/// The lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Tab {
    #[default]
    Queue,
    Own,
    Nodes,
    Events,
}

impl Tab {
    pub(super) const ALL: [Tab; 4] = [Tab::Queue, Tab::Own, Tab::Nodes, Tab::Events];

    pub(super) fn title(self) -> &'static str {
        match self {
            Tab::Queue => "1 Queue",
            Tab::Own => "2 Own jobs",
            Tab::Nodes => "3 Nodes",
            Tab::Events => "4 Events",
        }
    }

    fn number(self) -> usize {
        Tab::ALL.iter().position(|tab| *tab == self).unwrap_or(0)
    }

    fn by(number: usize) -> Tab {
        Tab::ALL[number % Tab::ALL.len()]
    }
}

/// Action of a key.
#[derive(Clone, Debug)]
pub(super) enum Deed {
    Quit,
    Why(JobLine),
    Log(String),
    Cancel(JobTarget),
    Hold(JobTarget),
    Release(JobTarget),
}

/// Result of an action.
#[derive(Clone, Debug)]
pub(super) enum PageOutput {
    /// A line.
    Note(String),
    /// A text over the lists.
    Text {
        title: String,
        text: String,
        /// The job whose output it is, which goes on.
        log_of: Option<String>,
    },
}

/// A text over the lists.
#[derive(Clone, Debug)]
pub(super) struct Overlay {
    pub(super) title: String,
    pub(super) lines: Vec<String>,
    /// Lines from its end that are below the last one shown.
    pub(super) below: usize,
    log_of: Option<String>,
}

/// All that is shown.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) lists: Lists,
    /// Whether lists have come.
    pub(super) is_known: bool,
    pub(super) tab: Tab,
    /// The line that is chosen in each list; the job on it stays chosen.
    chosen: [usize; 4],
    chosen_job: [Option<JobId>; 2],
    pub(super) events: VecDeque<String>,
    /// CPUs in use, per cent, and jobs that wait, each second.
    pub(super) use_history: VecDeque<u64>,
    pub(super) wait_history: VecDeque<u64>,
    /// Seconds since the lists came.
    pub(super) age_s: i64,
    pub(super) overlay: Option<Overlay>,
    /// The question that the next key answers.
    pub(super) question: Option<(String, JobTarget)>,
    pub(super) note: String,
}

impl Page {
    pub(super) fn new(cluster: &str) -> Page {
        let mut page = Page::default();
        page.lists.cluster = clean::line(cluster);
        page
    }

    /// Takes what has come.
    pub(super) fn take(&mut self, update: Update) {
        match update {
            Update::Lists(lists) => {
                self.lists = *lists;
                self.age_s = 0;
                if !self.is_known {
                    self.is_known = true;
                    self.note.clear();
                    self.tick();
                    self.age_s = 0;
                }
                self.find_chosen();
            }
            Update::Events(lines) => {
                self.events.extend(lines);
                let more = self.events.len().saturating_sub(EVENTS_MAX);
                self.events.drain(..more);
            }
            Update::Trouble(why) => self.note = why,
        }
    }

    /// A second has passed.
    pub(super) fn tick(&mut self) {
        self.age_s += 1;
        let (used, all) = self.cpus();
        let part = (used * 100).checked_div(all).unwrap_or(0);
        for (history, value) in [
            (&mut self.use_history, part),
            (&mut self.wait_history, self.lists.pending),
        ] {
            history.push_back(value);
            if history.len() > HISTORY_MAX {
                history.pop_front();
            }
        }
    }

    /// CPUs in use, and of how many.
    pub(super) fn cpus(&self) -> (u64, u64) {
        let sum =
            |of: &dyn Fn(&NodeLine) -> u32| self.lists.nodes.iter().map(|n| u64::from(of(n))).sum();
        (sum(&|node| node.used_cpus), sum(&|node| node.cpus))
    }

    /// The jobs of the list that is shown.
    pub(super) fn jobs(&self) -> Vec<&JobLine> {
        let is_own = self.tab == Tab::Own;
        let jobs = self.lists.jobs.iter();
        jobs.filter(|job| job.is_own || !is_own).collect()
    }

    fn lines(&self) -> usize {
        match self.tab {
            Tab::Queue | Tab::Own => self.jobs().len(),
            Tab::Nodes => self.lists.nodes.len(),
            Tab::Events => self.events.len(),
        }
    }

    /// The line that is chosen in the list that is shown.
    pub(super) fn chosen(&self) -> usize {
        let number = self.chosen.get(self.tab.number());
        number
            .copied()
            .unwrap_or(0)
            .min(self.lines().saturating_sub(1))
    }

    fn chosen_line(&self) -> Option<JobLine> {
        match self.tab {
            Tab::Queue | Tab::Own => self.jobs().get(self.chosen()).map(|line| (*line).clone()),
            Tab::Nodes | Tab::Events => None,
        }
    }

    fn choose(&mut self, line: usize) {
        let line = line.min(self.lines().saturating_sub(1));
        let number = self.tab.number();
        if let Some(chosen) = self.chosen.get_mut(number) {
            *chosen = line;
        }
        let job = self.chosen_line().map(|line| line.id);
        if let Some(chosen) = self.chosen_job.get_mut(number) {
            *chosen = job;
        }
    }

    /// The job that was chosen is so still, wherever it stands now.
    fn find_chosen(&mut self) {
        let job = self.chosen_job.get(self.tab.number()).copied().flatten();
        let place = job.and_then(|job| self.jobs().iter().position(|line| line.id == job));
        let line = place.unwrap_or_else(|| self.chosen());
        self.choose(line);
    }

    fn go(&mut self, lines: isize) {
        match &mut self.overlay {
            Some(overlay) => {
                let most = overlay.lines.len().saturating_sub(1);
                overlay.below = overlay.below.saturating_add_signed(-lines).min(most);
            }
            None => self.choose(self.chosen().saturating_add_signed(lines)),
        }
    }

    /// Shows the result of an action.
    pub(super) fn show(&mut self, shown: PageOutput) {
        match shown {
            PageOutput::Note(text) => self.note = clean::line(&text),
            PageOutput::Text {
                title,
                text,
                log_of,
            } => {
                let lines = clean::clean_lines(&text);
                // A longer text than the terminal is shown from its begin, output from its end.
                let below = match (&self.overlay, &log_of) {
                    (Some(before), Some(_)) if before.log_of == log_of => before.below,
                    (_, Some(_)) => 0,
                    (_, None) => usize::MAX,
                };
                self.overlay = Some(Overlay {
                    title: clean::line(&title),
                    lines,
                    below,
                    log_of,
                });
            }
        }
    }

    /// The job whose output is shown.
    pub(super) fn followed_log(&self) -> Option<String> {
        self.overlay.as_ref()?.log_of.clone()
    }

    /// A key was pressed.
    pub(super) fn press(&mut self, key: KeyEvent) -> Option<Deed> {
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return Some(Deed::Quit);
        }
        self.note.clear();
        if let Some((_, target)) = self.question.take() {
            return match key.code {
                KeyCode::Char('y' | 'Y') => Some(Deed::Cancel(target)),
                _ => None,
            };
        }
        match key.code {
            KeyCode::Char('q') if self.overlay.is_none() => return Some(Deed::Quit),
            KeyCode::Char('q') | KeyCode::Esc => self.overlay = None,
            KeyCode::Up | KeyCode::Char('k') => self.go(-1),
            KeyCode::Down | KeyCode::Char('j') => self.go(1),
            KeyCode::PageUp => self.go(-(PAGE_LINES as isize)),
            KeyCode::PageDown => self.go(PAGE_LINES as isize),
            KeyCode::Home => self.go(isize::MIN + 1),
            KeyCode::End => self.go(isize::MAX),
            KeyCode::Tab => self.turn_to(Tab::by(self.tab.number() + 1)),
            KeyCode::BackTab => self.turn_to(Tab::by(self.tab.number() + Tab::ALL.len() - 1)),
            KeyCode::Char(digit @ '1'..='4') => {
                self.turn_to(Tab::by(digit.to_digit(10).unwrap_or(1) as usize - 1));
            }
            KeyCode::Char(letter @ ('w' | 'l' | 'c' | 'h')) => return self.act(letter),
            _ => {}
        }
        None
    }

    fn turn_to(&mut self, tab: Tab) {
        self.tab = tab;
        self.overlay = None;
        self.find_chosen();
    }

    /// A key that concerns the job that is chosen.
    fn act(&mut self, letter: char) -> Option<Deed> {
        if self.overlay.is_some() {
            return None;
        }
        let Some(line) = self.chosen_line() else {
            self.note = "No job is chosen.".to_owned();
            return None;
        };
        let target = target_of(&line);
        match letter {
            'w' => Some(Deed::Why(line)),
            'l' => Some(Deed::Log(line.name)),
            'c' => {
                self.question = Some((format!("Cancel job {}? y or n", line.name), target));
                None
            }
            _ if !line.is_pending => {
                self.note = "Only jobs that wait are held.".to_owned();
                None
            }
            _ if line.is_held => Some(Deed::Release(target)),
            _ => Some(Deed::Hold(target)),
        }
    }
}
