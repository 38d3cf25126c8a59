//! Scripts as the site writes them: what they see and set, and what is said of those with errors.

use super::*;
use muster_conf::options::{ChosenOptions, OptionCommand, Source};

type Lines = Rc<RefCell<Vec<(FilterLevel, String)>>>;

fn script(source: &str) -> (Result<Box<dyn CliFilter>, String>, Lines) {
    let lines = Lines::default();
    let own = Rc::clone(&lines);
    let log: FilterLog = Rc::new(move |level, text: &str| {
        own.borrow_mut().push((level, text.to_owned()));
    });
    let lua = Lua::new_with(StdLib::ALL_SAFE, LuaOptions::default()).unwrap();
    let path = "cli_filter.lua".to_owned();
    let script = CliScript { lua, path };
    let started = script.start(source.as_bytes(), "alpha", &log);
    let made = started.map(|()| Box::new(script) as Box<dyn CliFilter>);
    (made.map_err(|e| said(&e)), lines)
}

fn options(source: Source) -> FilterOptions {
    FilterOptions {
        chosen: ChosenOptions::new(OptionCommand::Sbatch),
        words: vec!["job.sh".to_owned(), "7".to_owned()],
        source,
    }
}

/// A script with these bodies.
fn filter(setup: &str, pre: &str, post: &str) -> String {
    format!(
        "function slurm_cli_setup_defaults(options, early)\n{setup}\nreturn slurm.SUCCESS\nend\n\
         function slurm_cli_pre_submit(options, offset)\n{pre}\nreturn slurm.SUCCESS\nend\n\
         function slurm_cli_post_submit(offset, job, step)\n{post}\nreturn slurm.SUCCESS\nend\n"
    )
}

#[test]
fn a_script_sees_and_sets_options_and_keeps_what_it_stores() {
    let source = filter(
        "options['threads-per-core'] = 1\noptions['mem-per-cpu'] = 2.0 * 8",
        "slurm.log_info('%s %s %d %s', options.type, options.argv[2], offset, options['time'])\n\
         if options['time'] == 'unset' then options['time'] = 30 end\n\
         options['hold'] = 'set'\noptions['comment'] = nil\n\
         slurm.cli_store(offset, slurm.json_cli_options(options))\n\
         assert(slurm.json_env():match('\"PATH\"'))",
        "slurm.log_error('%s', slurm.cli_retrieve(offset))\n\
         slurm.log_debug('%d %d', job, step)",
    );
    let (script, lines) = script(&source);
    let script = script.unwrap();
    let made = script.setup_defaults(options(Source::Default), false);
    let made = made.unwrap();
    assert_eq!(made.chosen.value("threads-per-core"), Some("1"));
    assert_eq!(made.chosen.source("mem-per-cpu"), Some(Source::Default));
    assert_eq!(made.get("mem-per-cpu").as_deref(), Some("16M"));
    let mut before = options(Source::CommandLine);
    before.set("comment", Some("x")).unwrap();
    let made = script.pre_submit(before, 2).unwrap();
    assert_eq!(made.chosen.value("time"), Some("30"));
    assert!(made.chosen.has("hold") && !made.chosen.has("comment"));
    script.post_submit(2, 41, None).unwrap();
    assert_eq!(
        *lines.borrow(),
        [
            (FilterLevel::Info, "lua: sbatch 7 2 unset".to_owned()),
            (
                FilterLevel::Error,
                r#"lua: {"hold":"set","time":"00:30:00"}"#.to_owned()
            ),
            (FilterLevel::Debug(2), "lua: 41 4294967294".to_owned()),
        ]
    );
}

#[test]
fn what_is_wrong_with_a_script_is_named() {
    let (made, _) = script("function slurm_cli_setup_defaults() end");
    let error = made.err().unwrap();
    assert_eq!(error, "cli_filter.lua has no function slurm_cli_pre_submit");
    for (body, error) in [
        ("return slurm.ERROR", ""),
        (
            "do return nil end",
            "slurm_cli_pre_submit of cli_filter.lua returned nil in place of a number such as slurm.SUCCESS",
        ),
        (
            "options.label = 1",
            "cli_filter.lua:6: sbatch has no option --label",
        ),
        (
            "options.comment = {}",
            "cli_filter.lua:6: table is not a valid value for options['comment']",
        ),
        (
            "slurm.json_cli_options({})",
            "cli_filter.lua:6: slurm.json_cli_options: the argument is not the table of options",
        ),
    ] {
        let body = body.replace("return slurm.ERROR", "do return slurm.ERROR end");
        let (made, _) = script(&filter("", &body, ""));
        let made = made.unwrap().pre_submit(options(Source::CommandLine), 0);
        assert_eq!(made.err().as_deref(), Some(error), "{body}");
    }
}
