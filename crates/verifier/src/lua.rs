//! A Lua machine with job_submit.lua in it: the global `slurm`, the tables that its functions get, and bounds on time and
//! memory. It does no I/O of its own; its lines and questions go by [`Host`].

mod cli_filter;
mod constants;
mod tables;

pub use cli_filter::load as load_cli_filter;

use crate::description::Description;
use crate::message::{
    DataQuery, DataReply, LINE_BYTES_MAX, LOG_LINES_MAX, Level, LoadScript, Subject,
    USER_LINES_MAX, Verdict,
};
use mlua::{Function, HookTriggers, Lua, LuaOptions, MultiValue, StdLib, Table, Value, VmState};
use muster_model::visible_text::{beginning, visible};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The function for submissions.
const SUBMIT: &str = "slurm_job_submit";
/// The function for changes of jobs.
const MODIFY: &str = "slurm_job_modify";
/// Instructions between two looks at the clock.
const LOOK_EVERY: u32 = 20_000;
/// Time that a script may go on after its time, since it may catch the error once.
const GRACE: Duration = Duration::from_millis(500);
/// Time for what the file does when it is loaded.
const LOAD_LIMIT: Duration = Duration::from_secs(5);

/// The connection of a script to the controller, for its lines and questions.
pub trait Host {
    /// A line for the log.
    fn log(&self, level: Level, text: &str);
    /// A question; absent if there is nobody to answer it.
    fn ask(&self, question: DataQuery) -> Option<DataReply>;
    /// It goes on though its time is over and it was said so: the process ends here.
    fn give_up(&self) -> !;
}

/// State that the functions share that a script calls.
struct Shared {
    host: Rc<dyn Host>,
    /// When the call that runs must be over.
    deadline: Cell<Option<Instant>>,
    time_limit: Duration,
    lines: RefCell<Vec<String>>,
    logged: Cell<usize>,
    /// Bytes that the script may use, beside those of its arguments.
    memory: usize,
    /// Bytes of what this call was given: lists that it asked for.
    given: Cell<usize>,
}

impl Shared {
    /// Makes something of an answer's, which is not the script's own memory.
    fn give<T>(&self, lua: &Lua, make: impl FnOnce() -> mlua::Result<T>) -> mlua::Result<T> {
        let before = lua.used_memory();
        lua.set_memory_limit(0)?;
        let made = make();
        let grown = lua.used_memory().saturating_sub(before);
        self.given.set(self.given.get().saturating_add(grown));
        lua.set_memory_limit(self.memory.saturating_add(self.given.get()))?;
        made
    }

    /// An error when the call that runs should be over; the end of the process if it goes on after that. Lua looks between its
    /// instructions: what takes long within one looks itself.
    fn check_time(&self) -> mlua::Result<()> {
        let Some(deadline) = self.deadline.get() else {
            return Ok(());
        };
        let now = Instant::now();
        if now < deadline {
            return Ok(());
        }
        if now > deadline + GRACE {
            self.host.give_up();
        }
        let text = format!("it did not end in {} ms", self.time_limit.as_millis());
        Err(mlua::Error::runtime(text))
    }

    fn log(&self, level: Level, text: &str) {
        let count = self.logged.get();
        self.logged.set(count.saturating_add(1));
        match count {
            0..LOG_LINES_MAX => self.host.log(level, bounded(&visible(text))),
            LOG_LINES_MAX => {
                let text = "further lines of this call are left out";
                self.host.log(Level::Info, text);
            }
            _ => {}
        }
    }

    fn say(&self, text: &str) {
        let mut lines = self.lines.borrow_mut();
        for line in text.split('\n') {
            match lines.len() {
                0..USER_LINES_MAX => lines.push(bounded(&visible(line)).to_owned()),
                USER_LINES_MAX => lines.push("(further lines are left out)".to_owned()),
                _ => return,
            }
        }
    }
}

fn bounded(text: &str) -> &str {
    beginning(text, LINE_BYTES_MAX)
}

/// A loaded script.
pub struct Script {
    lua: Lua,
    shared: Rc<Shared>,
    time_limit: Duration,
}

impl Script {
    /// Runs the text of a file, which makes its functions.
    ///
    /// # Errors
    /// What is wrong with it, with the line.
    pub fn load(source: &[u8], load: &LoadScript, host: Rc<dyn Host>) -> Result<Script, String> {
        let options = LuaOptions::default();
        let lua = Lua::new_with(StdLib::ALL_SAFE, options).map_err(|e| e.to_string())?;
        let bytes = usize::try_from(load.memory_bytes).unwrap_or(usize::MAX);
        lua.set_memory_limit(bytes).map_err(|e| e.to_string())?;
        let shared = Rc::new(Shared {
            host,
            deadline: Cell::new(None),
            time_limit: Duration::from_millis(load.time_limit_ms),
            lines: RefCell::default(),
            logged: Cell::new(0),
            memory: bytes,
            given: Cell::new(0),
        });
        let script = Script {
            lua,
            shared,
            time_limit: Duration::from_millis(load.time_limit_ms),
        };
        script.watch_time().map_err(|e| e.to_string())?;
        script.run_file(source, load).map_err(|e| said(&e))?;
        Ok(script)
    }

    fn run_file(&self, source: &[u8], load: &LoadScript) -> mlua::Result<()> {
        let path = &load.path;
        constants::set(&self.lua, &load.cluster)?;
        tables::set(&self.lua, &self.shared)?;
        self.set_functions()?;
        self.shared
            .deadline
            .set(Some(Instant::now() + self.time_limit.max(LOAD_LIMIT)));
        let name = format!("@{path}");
        self.lua.load(source).set_name(name).exec()?;
        self.shared.deadline.set(None);
        for name in [SUBMIT, MODIFY] {
            if !matches!(self.lua.globals().get(name)?, Value::Function(_)) {
                let text = format!("{path} has no function {name}");
                return Err(mlua::Error::runtime(text));
            }
        }
        Ok(())
    }

    /// Ends calls that take too long, by an error that names the place; the process if the script catches that and goes on.
    fn watch_time(&self) -> mlua::Result<()> {
        let shared = Rc::clone(&self.shared);
        let triggers = HookTriggers::new().every_nth_instruction(LOOK_EVERY);
        self.lua.set_global_hook(triggers, move |_, _| {
            shared.check_time()?;
            Ok(VmState::Continue)
        })
    }

    /// `slurm.log_info` and so on, and what of Lua writes to a standard output that is nobody's.
    fn set_functions(&self) -> mlua::Result<()> {
        let lua = &self.lua;
        let slurm: Table = lua.globals().get("slurm")?;
        let format: Function = lua.globals().get::<Table>("string")?.get("format")?;
        let levels = [
            ("log_error", Level::Error),
            ("error", Level::Error),
            ("log_info", Level::Info),
            ("log_verbose", Level::Debug),
            ("log_debug", Level::Debug),
            ("log_debug2", Level::Trace),
            ("log_debug3", Level::Trace),
            ("log_debug4", Level::Trace),
        ];
        for (name, level) in levels {
            let (shared, format) = (Rc::clone(&self.shared), format.clone());
            let log = lua.create_function(move |_, arguments: MultiValue| {
                shared.log(level, &formatted(&format, arguments)?);
                Ok(())
            })?;
            slurm.set(name, log)?;
        }
        for name in ["log_user", "user_msg"] {
            let (shared, format) = (Rc::clone(&self.shared), format.clone());
            let say = lua.create_function(move |_, arguments: MultiValue| {
                shared.say(&formatted(&format, arguments)?);
                Ok(())
            })?;
            slurm.set(name, say)?;
        }
        // The two arguments of old scripts: a level and a text.
        let shared = Rc::clone(&self.shared);
        let log = lua.create_function(move |_, (level, text): (i64, mlua::LuaString)| {
            let level = match level {
                0 => Level::Error,
                1 => Level::Info,
                _ => Level::Debug,
            };
            shared.log(level, &text.to_string_lossy());
            Ok(())
        })?;
        slurm.set("log", log)?;
        let shared = Rc::clone(&self.shared);
        let print = lua.create_function(move |lua, arguments: MultiValue| {
            let tostring: Function = lua.globals().get("tostring")?;
            let mut words = Vec::new();
            for argument in arguments {
                let word: mlua::LuaString = tostring.call(argument)?;
                words.push(word.to_string_lossy().clone());
            }
            shared.log(Level::Debug, &words.join("\t"));
            Ok(())
        })?;
        lua.globals().set("print", print)
    }

    /// Has the script verify a request.
    pub fn verify(&self, subject: &Subject) -> Verdict {
        self.shared.lines.borrow_mut().clear();
        self.shared.logged.set(0);
        let before = Description::of(subject);
        let description = Rc::new(RefCell::new(before.clone()));
        let end = Instant::now() + self.time_limit;
        self.shared.deadline.set(Some(end));
        let called = self.call(subject, &description);
        self.shared.deadline.set(None);
        let lines = std::mem::take(&mut *self.shared.lines.borrow_mut());
        let verdict = match called {
            Ok(0) => description.take().verdict(&before, subject),
            Ok(code) => Verdict {
                code,
                ..Verdict::default()
            },
            Err(e) => Verdict {
                failed: Some(said(&e)),
                ..Verdict::default()
            },
        };
        // The rest of this call's memory is not charged to the next one.
        let _ = self.lua.gc_step();
        Verdict { lines, ..verdict }
    }

    fn call(&self, subject: &Subject, description: &Rc<RefCell<Description>>) -> mlua::Result<i64> {
        let (lua, shared) = (&self.lua, &self.shared);
        let job = tables::description(lua, shared, description)?;
        let partitions = tables::partitions(lua, shared)?;
        let uid = i64::from(subject.uid);
        let globals = lua.globals();
        tables::forget(lua, &self.shared)?;
        let returned: Value = match &subject.change {
            None => {
                let function: Function = globals.get(SUBMIT)?;
                function.call((job, partitions, uid))?
            }
            Some(change) => {
                let function: Function = globals.get(MODIFY)?;
                let record = tables::row(lua, &change.job)?;
                function.call((job, record, partitions, uid))?
            }
        };
        match returned {
            Value::Integer(code) => Ok(code),
            Value::Number(code) => Ok(tables::whole(code)),
            other => Err(mlua::Error::runtime(format!(
                "it returned {} in place of a number such as slurm.SUCCESS",
                other.type_name()
            ))),
        }
    }
}

/// Arguments as string.format makes a text of them; a text alone is itself, whatever is in it.
fn formatted(format: &Function, arguments: MultiValue) -> mlua::Result<String> {
    let alone = match (arguments.len(), arguments.front()) {
        (1, Some(Value::String(text))) => Some(text.clone()),
        _ => None,
    };
    let text: mlua::LuaString = match (format.call(arguments), alone) {
        (Ok(text), _) | (Err(_), Some(text)) => text,
        (Err(e), None) => return Err(e),
    };
    Ok(text.to_string_lossy().clone())
}

/// An error of Lua in one line: the place and the text, without the stack.
fn said(error: &mlua::Error) -> String {
    let text = match error {
        mlua::Error::CallbackError { cause, traceback } => {
            // An error of a function of ours has no place of its own.
            let place = traceback.lines().find(|line| line.contains(".lua:"));
            let place = place.map_or("", |line| line.trim());
            let place = place.split(": in ").next().unwrap_or_default();
            match (place, said(cause)) {
                ("", text) => text,
                (place, text) => format!("{place}: {text}"),
            }
        }
        mlua::Error::RuntimeError(text) => text.clone(),
        mlua::Error::SyntaxError { message, .. } => message.clone(),
        mlua::Error::MemoryError(_) => "it uses more memory than it may".to_owned(),
        other => other.to_string(),
    };
    let line = text.lines().next().unwrap_or_default();
    bounded(&visible(line)).to_owned()
}

#[cfg(test)]
mod tests;
