//! `cli_filter.lua`: the site's filter of the options of sbatch, srun and salloc. It runs in the user's own process, as the user, so
//! that there are no bounds on it; it is no place for rules that must hold, since a user can go without.

use super::{constants, formatted, said, tables};
use crate::fields::NO_VAL;
use mlua::{Function, Lua, LuaOptions, MultiValue, StdLib, Table, Value};
use muster_conf::options::filter::{CliFilter, FilterLevel, FilterLog, FilterOptions};
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

const SETUP: &str = "slurm_cli_setup_defaults";
const PRE: &str = "slurm_cli_pre_submit";
const POST: &str = "slurm_cli_post_submit";
/// Field of the metatable of `options`: a function that returns the given options as JSON.
const GIVEN: &str = "muster_given";
/// Where `slurm.cli_store` keeps what a script gives it.
const STORED: &str = "muster stored";

/// A loaded script.
struct CliScript {
    lua: Lua,
    path: String,
}

/// Runs a file, which makes its functions.
///
/// # Errors
/// What is wrong with it, with the line.
pub fn load(path: &Path, cluster: &str, log: FilterLog) -> Result<Box<dyn CliFilter>, String> {
    let name = path.display().to_string();
    let source = std::fs::read(path).map_err(|e| format!("{name}: {e}"))?;
    let lua = Lua::new_with(StdLib::ALL_SAFE, LuaOptions::default()).map_err(|e| said(&e))?;
    let script = CliScript { lua, path: name };
    script.start(&source, cluster, &log).map_err(|e| said(&e))?;
    Ok(Box::new(script))
}

impl CliScript {
    fn start(&self, source: &[u8], cluster: &str, log: &FilterLog) -> mlua::Result<()> {
        let lua = &self.lua;
        constants::set(lua, cluster)?;
        lua.set_named_registry_value(STORED, lua.create_table()?)?;
        let slurm: Table = lua.globals().get("slurm")?;
        set_log(lua, &slurm, log)?;
        slurm.set("time_str2mins", tables::minutes(lua)?)?;
        set_json(lua, &slurm)?;
        let name = format!("@{}", self.path);
        lua.load(source).set_name(name).exec()?;
        for name in [SETUP, PRE, POST] {
            if !matches!(lua.globals().get(name)?, Value::Function(_)) {
                let text = format!("{} has no function {name}", self.path);
                return Err(mlua::Error::runtime(text));
            }
        }
        Ok(())
    }

    /// Calls a function of the script, which must return `slurm.SUCCESS`.
    fn call(&self, name: &str, arguments: impl mlua::IntoLuaMulti) -> Result<(), String> {
        let called = || -> mlua::Result<Value> {
            let function: Function = self.lua.globals().get(name)?;
            function.call(arguments)
        };
        match called().map_err(|e| said(&e))? {
            Value::Integer(0) => Ok(()),
            Value::Number(0.0) => Ok(()),
            // The script has said why.
            Value::Integer(_) | Value::Number(_) => Err(String::new()),
            other => Err(format!(
                "{name} of {} returned {} in place of a number such as slurm.SUCCESS",
                self.path,
                other.type_name()
            )),
        }
    }

    /// Calls a function with the options, and returns its changes of them.
    fn with_options(
        &self,
        name: &str,
        options: FilterOptions,
        other: Value,
    ) -> Result<FilterOptions, String> {
        let shared = Rc::new(RefCell::new(options));
        let table = self.options(&shared).map_err(|e| said(&e))?;
        self.call(name, (table, other))?;
        Ok(shared.borrow().clone())
    }

    /// The table `options`.
    fn options(&self, shared: &Rc<RefCell<FilterOptions>>) -> mlua::Result<Table> {
        let lua = &self.lua;
        let (table, meta) = (lua.create_table()?, lua.create_table()?);
        let own = Rc::clone(shared);
        let get = move |lua: &Lua, (_, key): (Value, String)| {
            let options = own.borrow();
            Ok(match key.as_str() {
                "type" => Value::String(lua.create_string(options.chosen.command.name())?),
                "argv" => Value::Table(lua.create_sequence_from(options.words.clone())?),
                "argc" => Value::Integer(i64::try_from(options.words.len()).unwrap_or(0)),
                name => match options.get(name) {
                    Some(value) => Value::String(lua.create_string(value)?),
                    None => Value::Nil,
                },
            })
        };
        meta.set("__index", lua.create_function(get)?)?;
        let own = Rc::clone(shared);
        let set = move |lua: &Lua, (_, key, value): (Value, String, Value)| {
            let text = match &value {
                Value::Nil | Value::Boolean(false) => None,
                Value::Boolean(true) => Some("true".to_owned()),
                Value::Number(number) if number.fract() == 0.0 => Some(format!("{number:.0}")),
                _ => {
                    let text = lua.coerce_string(value.clone())?;
                    let text = text.ok_or_else(|| {
                        let kind = value.type_name();
                        mlua::Error::runtime(format!(
                            "{kind} is not a valid value for options['{key}']"
                        ))
                    })?;
                    Some(text.to_string_lossy().clone())
                }
            };
            let set = own.borrow_mut().set(&key, text.as_deref());
            set.map_err(mlua::Error::runtime)
        };
        meta.set("__newindex", lua.create_function(set)?)?;
        let own = Rc::clone(shared);
        let given = move |_: &Lua, (): ()| {
            let given = own.borrow().given();
            let pairs = given.into_iter().map(|(name, value)| (name, value.into()));
            Ok(json(pairs))
        };
        meta.set(GIVEN, lua.create_function(given)?)?;
        table.set_metatable(Some(meta))?;
        Ok(table)
    }
}

impl CliFilter for CliScript {
    fn setup_defaults(
        &self,
        options: FilterOptions,
        is_early: bool,
    ) -> Result<FilterOptions, String> {
        self.with_options(SETUP, options, Value::Boolean(is_early))
    }

    fn pre_submit(
        &self,
        options: FilterOptions,
        component: usize,
    ) -> Result<FilterOptions, String> {
        let component = i64::try_from(component).unwrap_or(i64::MAX);
        self.with_options(PRE, options, Value::Integer(component))
    }

    fn post_submit(&self, component: usize, job: u64, step: Option<u32>) -> Result<(), String> {
        let component = i64::try_from(component).unwrap_or(i64::MAX);
        let step = step.map_or(NO_VAL, i64::from);
        self.call(POST, (component, job.cast_signed(), step))
    }
}

/// `slurm.log_error` and so on, which the user sees.
fn set_log(lua: &Lua, slurm: &Table, log: &FilterLog) -> mlua::Result<()> {
    let format: Function = lua.globals().get::<Table>("string")?.get("format")?;
    let levels = [
        ("log_error", FilterLevel::Error),
        ("error", FilterLevel::Error),
        ("log_user", FilterLevel::Info),
        ("user_msg", FilterLevel::Info),
        ("log_info", FilterLevel::Info),
        ("log_verbose", FilterLevel::Verbose),
        ("log_debug", FilterLevel::Debug(2)),
        ("log_debug2", FilterLevel::Debug(3)),
        ("log_debug3", FilterLevel::Debug(4)),
        ("log_debug4", FilterLevel::Debug(5)),
    ];
    for (name, level) in levels {
        let (log, format) = (Rc::clone(log), format.clone());
        let function = lua.create_function(move |_, arguments: MultiValue| {
            log(level, &format!("lua: {}", formatted(&format, arguments)?));
            Ok(())
        })?;
        slurm.set(name, function)?;
    }
    Ok(())
}

/// `slurm.json_cli_options`, `slurm.json_env`, `slurm.cli_store` and `slurm.cli_retrieve`.
fn set_json(lua: &Lua, slurm: &Table) -> mlua::Result<()> {
    let options = lua.create_function(|_, options: Table| {
        let given = options
            .metatable()
            .and_then(|meta| meta.raw_get::<Function>(GIVEN).ok());
        let given = given.ok_or_else(|| {
            mlua::Error::runtime("slurm.json_cli_options: the argument is not the table of options")
        })?;
        given.call::<String>(())
    })?;
    slurm.set("json_cli_options", options)?;
    let environment = lua.create_function(|_, (): ()| {
        let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
        let pairs = std::env::vars_os().map(|(name, value)| (text(name), text(value).into()));
        Ok(json(pairs))
    })?;
    slurm.set("json_env", environment)?;
    let store = lua.create_function(|lua, (key, value): (Value, Value)| {
        let stored: Table = lua.named_registry_value(STORED)?;
        stored.set(key, value)
    })?;
    slurm.set("cli_store", store)?;
    let retrieve = lua.create_function(|lua, key: Value| {
        let stored: Table = lua.named_registry_value(STORED)?;
        stored.get::<Value>(key)
    })?;
    slurm.set("cli_retrieve", retrieve)
}

fn json<Name: Into<String>>(pairs: impl Iterator<Item = (Name, serde_json::Value)>) -> String {
    let object = pairs.map(|(name, value)| (name.into(), value));
    serde_json::Value::Object(object.collect()).to_string()
}

#[cfg(test)]
mod tests;
