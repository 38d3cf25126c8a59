//! Filters of the command line: what `CliFilterPlugins` of slurm.conf names. sbatch, srun and salloc run them in their own process,
//! with the user's rights; nothing relies on them.

use super::line::SubmitLine;
use crate::say::Say;
use muster_conf::endpoint::{self, Endpoint};
use muster_conf::options::filter::{
    CliFilter, FilterLevel, FilterLoader, FilterLog, FilterOptions,
};
use muster_conf::options::{ChosenOptions, OptionCommand, OptionRow, Source};
use muster_conf::site_options::{self, SiteOptions};
use std::cell::Cell;
use std::os::unix::process::CommandExt as _;
use std::process::{self, ExitCode};
use std::rc::Rc;
use std::sync::OnceLock;

mod user_defaults;

/// The script, beside slurm.conf.
const SCRIPT: &str = "cli_filter.lua";

static LUA: OnceLock<FilterLoader> = OnceLock::new();

/// Has this program run scripts in Lua by `loader`. One that has none hands commands over to `muster` where there is a script.
pub fn set_lua(loader: FilterLoader) {
    // The first one stays.
    let _ = LUA.set(loader);
}

/// The filters of a command, in order.
pub(crate) struct Filters {
    say: Rc<Cell<Say>>,
    filters: Vec<Box<dyn CliFilter>>,
    /// Options of the site's own.
    pub(crate) site: &'static [OptionRow],
}

impl Filters {
    fn none(command: OptionCommand) -> Filters {
        Filters {
            say: Rc::new(Cell::new(Say::new(command.name()))),
            filters: Vec::new(),
            site: &[],
        }
    }

    /// No filters, with the options of the site's own: for requests that are made of options by a program that is no
    /// command.
    ///
    /// # Errors
    /// The exit code, after the file's error was printed.
    pub(crate) fn options_of_site(command: OptionCommand) -> Result<Filters, ExitCode> {
        let mut all = Filters::none(command);
        let path = endpoint::conf_path().with_file_name(site_options::FILE);
        let Ok(text) = std::fs::read(&path) else {
            return Ok(all);
        };
        let text = String::from_utf8_lossy(&text);
        let (options, findings) = SiteOptions::parse(&text, &path.display().to_string());
        if let Some(finding) = findings.first() {
            return Err(all.say.get().fatal(&finding.to_string()));
        }
        all.site = options.rows();
        Ok(all)
    }

    /// Filters of slurm.conf.
    ///
    /// # Errors
    /// The exit code, after the filter that cannot run was named.
    pub(crate) fn of_site(command: OptionCommand, args: &[String]) -> Result<Filters, ExitCode> {
        let mut all = Filters::options_of_site(command)?;
        // A file that cannot be read is complained about where its other keys are needed.
        let Ok(site) = endpoint::read(&endpoint::conf_path()) else {
            return Ok(all);
        };
        for name in &site.cli_filters {
            let name = name.trim_start_matches("cli_filter/");
            let made = match name {
                "none" => continue,
                "user_defaults" => user_defaults::load(command, &site.cluster),
                "lua" => load_script(command, args, &site, all.log()),
                _ => Err(format!(
                    "CliFilterPlugins={name} is not supported: lua, user_defaults and none are"
                )),
            };
            let say = all.say.get();
            all.filters.push(made.map_err(|why| say.fatal(&why))?);
        }
        Ok(all)
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.filters.is_empty()
    }

    fn log(&self) -> FilterLog {
        let say = Rc::clone(&self.say);
        Rc::new(move |level, text| {
            let say = say.get();
            match level {
                FilterLevel::Error => say.error(text),
                FilterLevel::Info => say.info(text),
                FilterLevel::Verbose => say.verbose(text),
                FilterLevel::Debug(least) if say.verbose >= least => say.verbose(text),
                FilterLevel::Debug(_) => {}
            }
        })
    }

    fn refused(&self, why: &str) -> ExitCode {
        let say = self.say.get();
        if !why.is_empty() {
            say.error(why);
        }
        say.error("cli_filter plugin terminated with error");
        say.failed()
    }

    /// Options before any is read: what filters set where nobody says anything.
    ///
    /// # Errors
    /// The exit code, after it was said which filter refuses.
    pub(crate) fn defaults(
        &self,
        command: OptionCommand,
        is_early: bool,
    ) -> Result<ChosenOptions, ExitCode> {
        let mut chosen = ChosenOptions::new(command);
        chosen.site = self.site;
        let mut options = FilterOptions {
            chosen,
            words: Vec::new(),
            source: Source::Default,
        };
        for filter in &self.filters {
            let set = filter.setup_defaults(options, is_early);
            options = set.map_err(|why| self.refused(&why))?;
        }
        // The user alone sets the level of messages.
        options.chosen.verbose = 0;
        Ok(options.chosen)
    }

    /// Has filters see and change the options of all components.
    ///
    /// # Errors
    /// The exit code, after it was said which filter refuses.
    pub(crate) fn pre_submit(&self, lines: &mut [SubmitLine]) -> Result<(), ExitCode> {
        if let (Some(first), false) = (lines.first(), self.is_empty()) {
            self.say.set(first.say);
        }
        for filter in &self.filters {
            for (number, line) in lines.iter_mut().enumerate() {
                let options = FilterOptions {
                    chosen: line.chosen.clone(),
                    words: line.words.clone(),
                    source: Source::CommandLine,
                };
                let made = filter.pre_submit(options, number);
                line.chosen = made.map_err(|why| self.refused(&why))?.chosen;
                line.say.quiet = line.chosen.has("quiet");
            }
        }
        Ok(())
    }

    /// Informs filters of the job that the request became, and of the step. A job that there is cannot be refused any more: what
    /// filters complain about is shown.
    pub(crate) fn post_submit(&self, component: usize, job: u64, step: Option<u32>) {
        for filter in &self.filters {
            if let Err(why) = filter.post_submit(component, job, step) {
                let say = self.say.get();
                if !why.is_empty() {
                    say.error(&why);
                }
                say.error("cli_filter plugin post_submit failed");
            }
        }
    }
}

/// The script, by what this program runs Lua with; a program without hands over to the one that has it.
fn load_script(
    command: OptionCommand,
    args: &[String],
    site: &Endpoint,
    log: FilterLog,
) -> Result<Box<dyn CliFilter>, String> {
    let path = site.conf.with_file_name(SCRIPT);
    let Some(loader) = LUA.get() else {
        let own = std::env::current_exe().map_err(|e| format!("{}: {e}", path.display()))?;
        let muster = own.with_file_name("muster");
        let error = process::Command::new(&muster)
            .arg(command.name())
            .args(args)
            .exec();
        return Err(format!(
            "{}: {} cannot be run, which runs scripts in Lua: {error}",
            path.display(),
            muster.display()
        ));
    };
    loader(&path, &site.cluster, log).map_err(|why| format!("CliFilterPlugins=lua: {why}"))
}
