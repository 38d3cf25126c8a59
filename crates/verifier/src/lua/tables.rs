//! Tables that a script gets: `job_desc`, whose fields are read and set in a [`Description`], and tables that are asked for
//! when the script first looks into them.

use super::Shared;
use crate::description::Description;
use crate::fields::{self, INFINITE, MEM_PER_CPU, NO_VAL, NO_VAL64};
use crate::message::{self, DataQuery, DataReply, Level, Row};
use mlua::{Function, Lua, MultiValue, Table, Value};
use muster_model::time::TimeLimit;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Where tables that are made when they are needed keep their contents.
const LOADED: &str = "muster loaded";
/// Fields of `job_desc` that accounting knows, by their names there.
const BY_ACCOUNTING: [&str; 5] = [
    "default_account",
    "default_qos",
    "assoc_comment",
    "assoc_qos",
    "default_wckey",
];

/// A number of Slurm's as Lua has it: those of 64 bits that are no whole numbers of Lua are floating point.
fn to_lua_number(number: i64) -> Value {
    const LARGE: i64 = MEM_PER_CPU / 2;
    match number {
        NO_VAL64 => Value::Number(18_446_744_073_709_551_614.0),
        #[allow(clippy::cast_precision_loss)]
        n if n < LARGE => Value::Number(n.cast_unsigned() as f64),
        n => Value::Integer(n),
    }
}

/// The whole number that a floating point one is.
pub(super) fn whole(number: f64) -> i64 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    match number {
        n if n >= 18_446_744_073_709_000_000.0 => NO_VAL64,
        n if n >= 9_223_372_036_854_775_808.0 => (n as u64).cast_signed(),
        n => n as i64,
    }
}

fn to_lua(lua: &Lua, value: fields::Value) -> mlua::Result<Value> {
    Ok(match value {
        fields::Value::Nil => Value::Nil,
        fields::Value::Number(number) => to_lua_number(number),
        fields::Value::Bytes(bytes) => Value::String(lua.create_string(bytes)?),
        fields::Value::List(list) => Value::Table(lua.create_sequence_from(list)?),
    })
}

fn from_lua(value: &Value) -> Result<fields::Value, String> {
    Ok(match value {
        Value::Nil => fields::Value::Nil,
        Value::Boolean(on) => fields::Value::Number(i64::from(*on)),
        Value::Integer(number) => fields::Value::Number(*number),
        Value::Number(number) => fields::Value::Number(whole(*number)),
        Value::String(text) => fields::Value::Bytes(text.as_bytes().to_vec()),
        Value::Table(table) => {
            let list: mlua::Result<Vec<String>> = table.sequence_values().collect();
            fields::Value::List(list.map_err(|_| "a table of texts is expected".to_owned())?)
        }
        other => return Err(format!("{} is not a valid value for it", other.type_name())),
    })
}

/// `job_desc`.
pub(super) fn description(
    lua: &Lua,
    shared: &Rc<Shared>,
    description: &Rc<RefCell<Description>>,
) -> mlua::Result<Table> {
    let (table, meta) = (lua.create_table()?, lua.create_table()?);
    let (own, log) = (Rc::clone(description), Rc::clone(shared));
    let get = move |lua: &Lua, (_, name): (Value, mlua::LuaString)| {
        let name = name.to_string_lossy().clone();
        if name == "environment" {
            return environment(lua, &log, &own);
        }
        if BY_ACCOUNTING.contains(&name.as_str()) {
            return by_accounting(lua, &log, &own, &name);
        }
        if let Some(field) = fields::find(&name) {
            let value = (field.get)(&own.borrow());
            return to_lua(lua, value);
        }
        match fields::absent(&name) {
            Some(value) => to_lua(lua, value),
            None => {
                log.log(Level::Error, &format!("job_desc has no field {name}"));
                Ok(Value::Nil)
            }
        }
    };
    meta.set("__index", lua.create_function(get)?)?;
    let (own, log) = (Rc::clone(description), Rc::clone(shared));
    let set = move |_: &Lua, (_, name, value): (Value, mlua::LuaString, Value)| {
        let name = name.to_string_lossy().clone();
        if name == "environment" {
            return replace_environment(&log, &own, &value);
        }
        let set = fields::find(&name).and_then(|field| field.set);
        let Some(set) = set else {
            let text = format!("job_desc.{name} cannot be set here; it stays as it is");
            log.log(Level::Error, &text);
            return Ok(());
        };
        let value = from_lua(&value);
        let done = value.and_then(|value| set(&mut own.borrow_mut(), value));
        done.map_err(|why| mlua::Error::runtime(format!("job_desc.{name}: {why}")))
    };
    meta.set("__newindex", lua.create_function(set)?)?;
    table.set_metatable(Some(meta))?;
    Ok(table)
}

/// The user's association in the job's account and partition, from accounting.
fn by_accounting(
    lua: &Lua,
    shared: &Rc<Shared>,
    description: &Rc<RefCell<Description>>,
    name: &str,
) -> mlua::Result<Value> {
    let spec = &description.borrow().spec;
    let question = DataQuery::Association {
        account: spec.account.clone().unwrap_or_default(),
        partition: spec.partitions.first().cloned().unwrap_or_default(),
    };
    let Some(DataReply::Rows(rows)) = shared.host.ask(question) else {
        return Ok(Value::Nil);
    };
    let fields = rows
        .first()
        .map(|row| row.fields.as_slice())
        .unwrap_or_default();
    let found = fields.iter().find(|(own, _)| own == name);
    found.map_or(Ok(Value::Nil), |(_, value)| of_row(lua, value))
}

/// The environment as a table; nil where the job has none.
fn environment(
    lua: &Lua,
    shared: &Rc<Shared>,
    description: &Rc<RefCell<Description>>,
) -> mlua::Result<Value> {
    if description.borrow_mut().environment().is_none() {
        return Ok(Value::Nil);
    }
    let (table, meta) = (lua.create_table()?, lua.create_table()?);
    let (own, clock) = (Rc::clone(description), Rc::clone(shared));
    let get = move |lua: &Lua, (_, name): (Value, mlua::LuaString)| {
        // The variable is searched for among all, of which there may be very many.
        clock.check_time()?;
        let mut description = own.borrow_mut();
        let environment = description.environment();
        let value = environment.and_then(|all| all.value(&name.as_bytes()));
        value.map_or(Ok(Value::Nil), |value| {
            Ok(Value::String(lua.create_string(value)?))
        })
    };
    meta.set("__index", lua.create_function(get)?)?;
    let (own, clock) = (Rc::clone(description), Rc::clone(shared));
    let set = move |_: &Lua, (_, name, value): (Value, mlua::LuaString, Value)| {
        clock.check_time()?;
        let name = name.as_bytes();
        let value = value_of_variable(&name, &value)?;
        own.borrow_mut().set_variable(&name, value.as_deref());
        Ok(())
    };
    meta.set("__newindex", lua.create_function(set)?)?;
    let own = Rc::clone(description);
    let pairs = move |lua: &Lua, _: MultiValue| {
        let all = lua.create_table()?;
        if let Some(environment) = own.borrow_mut().environment() {
            for variable in environment.iter() {
                let name = muster_model::environment::name(variable);
                let value = variable.get(name.len() + 1..).unwrap_or_default();
                all.raw_set(lua.create_string(name)?, lua.create_string(value)?)?;
            }
        }
        let next: Function = lua.globals().get("next")?;
        Ok((next, all, Value::Nil))
    };
    meta.set("__pairs", lua.create_function(pairs)?)?;
    table.set_metatable(Some(meta))?;
    Ok(Value::Table(table))
}

/// The value of a variable; none where it is to be removed.
fn value_of_variable(name: &[u8], value: &Value) -> mlua::Result<Option<Vec<u8>>> {
    let refuse = |why: String| Err(mlua::Error::runtime(format!("job_desc.environment: {why}")));
    if name.is_empty() || name.iter().any(|byte| [b'=', 0].contains(byte)) {
        let name = String::from_utf8_lossy(name);
        return refuse(format!("'{name}' is not a valid variable name"));
    }
    Ok(match value {
        Value::Nil => None,
        Value::Integer(number) => Some(number.to_string().into_bytes()),
        Value::Number(number) => Some(number.to_string().into_bytes()),
        Value::String(text) if !text.as_bytes().contains(&0) => Some(text.as_bytes().to_vec()),
        other => {
            return refuse(format!(
                "{} is not a valid value of a variable",
                other.type_name()
            ));
        }
    })
}

/// All variables of a table at once: each alone would be searched for among all.
fn replace_environment(
    shared: &Shared,
    description: &Rc<RefCell<Description>>,
    value: &Value,
) -> mlua::Result<()> {
    let Value::Table(table) = value else {
        return Err(mlua::Error::runtime("job_desc.environment is a table"));
    };
    let mut variables = BTreeMap::new();
    for pair in table.pairs::<mlua::LuaString, Value>() {
        let (name, value) = pair?;
        let name = name.as_bytes().to_vec();
        let value = value_of_variable(&name, &value)?;
        variables.insert(name, value);
        shared.check_time()?;
    }
    description.borrow_mut().set_variables(variables);
    Ok(())
}

fn of_row(lua: &Lua, value: &message::Value) -> mlua::Result<Value> {
    Ok(match value {
        message::Value::Number(number) => to_lua_number(*number),
        message::Value::Text(text) => Value::String(lua.create_string(text)?),
    })
}

/// A record as a table.
pub(super) fn row(lua: &Lua, row: &Row) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    for (name, value) in &row.fields {
        table.raw_set(name.as_str(), of_row(lua, value)?)?;
    }
    Ok(table)
}

/// All records of a list, of which very many come in parts.
fn rows(lua: &Lua, shared: &Shared, name: &str, question: DataQuery) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let mut next = Some(question);
    while let Some(question) = next.take() {
        let list = match shared.host.ask(question) {
            Some(DataReply::Rows(list)) => list,
            Some(DataReply::Part(list, more)) => {
                next = more.map(DataQuery::JobsFrom);
                list
            }
            // An empty list would be a wrong one.
            Some(DataReply::Number(_)) | None => {
                let text = format!("slurm.{name}: the controller does not answer");
                return Err(mlua::Error::runtime(text));
            }
        };
        for record in &list {
            table.raw_set(record.key.as_str(), row(lua, record)?)?;
        }
        shared.check_time()?;
    }
    Ok(table)
}

/// The partitions of the user.
pub(super) fn partitions(lua: &Lua, shared: &Rc<Shared>) -> mlua::Result<Table> {
    asked_for(lua, shared, "partitions", DataQuery::Partitions)
}

/// A table that is empty until something looks into it: then it is asked for, once in a call.
fn asked_for(
    lua: &Lua,
    shared: &Rc<Shared>,
    name: &'static str,
    question: DataQuery,
) -> mlua::Result<Table> {
    let (table, meta) = (lua.create_table()?, lua.create_table()?);
    let shared = Rc::clone(shared);
    let load = lua.create_function(move |lua, _: MultiValue| {
        let loaded: Table = lua.named_registry_value(LOADED)?;
        if let Value::Table(known) = loaded.get(name)? {
            return Ok(known);
        }
        let made = shared.give(lua, || rows(lua, &shared, name, question.clone()))?;
        loaded.set(name, &made)?;
        Ok(made)
    })?;
    let of = load.clone();
    let get = move |_: &Lua, (_, key): (Value, Value)| {
        // Keys of jobs are texts; numbers are taken for them.
        let key = match key {
            Value::Integer(number) => number.to_string(),
            Value::String(text) => text.to_string_lossy().clone(),
            _ => return Ok(Value::Nil),
        };
        of.call::<Table>(())?.raw_get::<Value>(key)
    };
    meta.set("__index", lua.create_function(get)?)?;
    let of = load.clone();
    let pairs = move |lua: &Lua, _: MultiValue| {
        let next: Function = lua.globals().get("next")?;
        Ok((next, of.call::<Table>(())?, Value::Nil))
    };
    meta.set("__pairs", lua.create_function(pairs)?)?;
    meta.set("muster_load", load)?;
    table.set_metatable(Some(meta))?;
    Ok(table)
}

/// The next call asks anew.
pub(super) fn forget(lua: &Lua, shared: &Shared) -> mlua::Result<()> {
    lua.set_named_registry_value(LOADED, lua.create_table()?)?;
    if shared.given.take() > 0 {
        lua.gc_collect()?;
        lua.set_memory_limit(shared.memory)?;
    }
    Ok(())
}

/// `slurm.jobs`, `slurm.reservations`, `slurm.get_qos_priority`, and a `next` that knows tables that are asked for.
pub(super) fn set(lua: &Lua, shared: &Rc<Shared>) -> mlua::Result<()> {
    forget(lua, shared)?;
    let slurm: Table = lua.globals().get("slurm")?;
    slurm.set(
        "jobs",
        asked_for(lua, shared, "jobs", DataQuery::JobsFrom(0))?,
    )?;
    let reservations = asked_for(lua, shared, "reservations", DataQuery::Reservations)?;
    slurm.set("reservations", reservations)?;
    let own = Rc::clone(shared);
    let priority = lua.create_function(move |_, name: String| {
        match own.host.ask(DataQuery::QosPriority(name)) {
            Some(DataReply::Number(number)) => Ok(number),
            _ => Ok(None),
        }
    })?;
    slurm.set("get_qos_priority", priority)?;
    slurm.set("time_str2mins", minutes(lua)?)?;
    let raw_next: Function = lua.globals().get("next")?;
    let next = lua.create_function(move |_, (table, key): (Table, Value)| {
        let load = table
            .metatable()
            .and_then(|meta| meta.raw_get::<Function>("muster_load").ok());
        let table = match load {
            Some(load) => load.call::<Table>(())?,
            None => table,
        };
        raw_next.call::<MultiValue>((table, key))
    })?;
    lua.globals().set("next", next)
}

/// `slurm.time_str2mins`.
pub(super) fn minutes(lua: &Lua) -> mlua::Result<Function> {
    lua.create_function(|_, text: String| {
        Ok(match muster_conf::options::job::read_limit(&text) {
            Ok(TimeLimit::Minutes(minutes)) => i64::from(minutes),
            Ok(TimeLimit::Unlimited) => INFINITE,
            Err(_) => NO_VAL,
        })
    })
}
