//! What scripts see, change and refuse, and what ends them.

use super::*;
use crate::message::{ProposedChange, Row, Value};
use muster_model::command::JobUpdate;
use muster_model::environment::Environment;
use muster_model::mail::MailOptions;
use muster_model::spec::{ExecContext, GresAsk, JobSpec, MemoryAsk};
use muster_model::time::TimeLimit;

/// What a script said and asked.
#[derive(Default)]
struct Recorder {
    log: RefCell<Vec<(Level, String)>>,
    questions: RefCell<Vec<DataQuery>>,
    /// Jobs of others.
    others: usize,
    /// It does not say which jobs there are.
    is_silent: bool,
}

impl Host for Recorder {
    fn log(&self, level: Level, text: &str) {
        self.log.borrow_mut().push((level, text.to_owned()));
    }

    fn ask(&self, question: DataQuery) -> Option<DataReply> {
        self.questions.borrow_mut().push(question.clone());
        let row = |key: &str, name: &str, number| Row {
            key: key.to_owned(),
            fields: vec![
                ("name".to_owned(), Value::Text(key.to_owned())),
                (name.to_owned(), Value::Number(number)),
            ],
        };
        Some(match question {
            DataQuery::Partitions => DataReply::Rows(vec![
                row("batch", "max_time", 60),
                row("long", "max_time", 6000),
            ]),
            DataQuery::JobsFrom(_) if self.is_silent => return None,
            DataQuery::JobsFrom(first) => {
                let first = usize::try_from(first).unwrap();
                let end = (first + 1000).min(self.others);
                let mut rows: Vec<Row> = (first..end)
                    .map(|n| Row {
                        key: format!("x{n}"),
                        fields: vec![("comment".to_owned(), Value::Text("c".repeat(1 << 10)))],
                    })
                    .collect();
                if first == 0 {
                    rows.push(row("17", "user_id", 1000));
                }
                let more = (end < self.others).then(|| u64::try_from(end).unwrap());
                DataReply::Part(rows, more)
            }
            DataQuery::Reservations => DataReply::Rows(Vec::new()),
            DataQuery::Association { .. } => {
                let default = (
                    "default_account".to_owned(),
                    Value::Text("physics".to_owned()),
                );
                DataReply::Rows(vec![Row {
                    key: String::new(),
                    fields: vec![default],
                }])
            }
            DataQuery::QosPriority(_) => DataReply::Number(Some(7)),
        })
    }

    fn give_up(&self) -> ! {
        panic!("the process would end here")
    }
}

fn load(limit_ms: u64) -> LoadScript {
    LoadScript {
        path: "job_submit.lua".to_owned(),
        last_good: None,
        time_limit_ms: limit_ms,
        memory_bytes: 16 << 20,
        cluster: "c1".to_owned(),
    }
}

fn script_of(text: &str, host: &Rc<Recorder>) -> Result<Script, String> {
    Script::load(text.as_bytes(), &load(200), Rc::clone(host) as _)
}

/// A script whose submissions do this.
fn submit(body: &str) -> (Script, Rc<Recorder>) {
    let host = Rc::<Recorder>::default();
    let text = format!(
        "function slurm_job_submit(job_desc, part_list, submit_uid)\n{body}\nend\n\
         function slurm_job_modify() return slurm.SUCCESS end"
    );
    (script_of(&text, &host).unwrap(), host)
}

fn subject(spec: JobSpec) -> Subject {
    let environment: Environment = ["FOO=bar", "PATH=/bin"].into_iter().collect();
    let context = ExecContext {
        environment,
        ..ExecContext::default()
    };
    Subject {
        uid: 1000,
        user: "alice".to_owned(),
        spec,
        script: Some(b"#!/bin/sh\n\xff\n".to_vec().into()),
        context: Some(context.encoded().into()),
        component: None,
        change: None,
    }
}

fn verify(body: &str, spec: JobSpec) -> Verdict {
    submit(body).0.verify(&subject(spec))
}

#[test]
fn fields_that_were_not_given_are_no_values() {
    let body = r#"
        assert(job_desc.account == nil and job_desc.partition == nil, "texts")
        assert(job_desc.time_limit == slurm.NO_VAL and job_desc.min_nodes == slurm.NO_VAL, "32 bits")
        assert(job_desc.cpus_per_task == slurm.NO_VAL16 and job_desc.shared == slurm.NO_VAL16, "16 bits")
        assert(job_desc.pn_min_memory == slurm.NO_VAL64 and job_desc.min_mem_per_cpu == nil, "64 bits")
        assert(job_desc.nice == slurm.NO_VAL and job_desc.priority == slurm.NO_VAL)
        assert(submit_uid == 1000 and job_desc.user_id == 1000 and job_desc.user_name == "alice")
        assert(slurm.CLUSTER_NAME == "c1" and job_desc.nothing == nil and job_desc.burst_buffer == nil)
        return slurm.SUCCESS"#;
    let verdict = verify(body, JobSpec::default());
    assert_eq!(verdict, Verdict::default());
}

#[test]
fn what_a_script_sets_is_the_jobs() {
    let body = r#"
        job_desc.account = "physics"
        job_desc.partition = "long, batch"
        job_desc.time_limit = 90
        job_desc.tres_per_node = "gres/gpu:a100:2"
        job_desc.min_mem_per_cpu = 2000
        job_desc.num_tasks, job_desc.min_nodes, job_desc.max_nodes = 8, 2, 2
        job_desc.admin_comment = "by the site"
        job_desc.priority = 4000
        job_desc.nice = slurm.NICE_OFFSET + 5
        job_desc.dependency = "afterok:3"
        job_desc.environment["ADDED"] = 1
        job_desc.environment.FOO = nil
        job_desc.script = job_desc.script .. '# seen\n'
        job_desc.mail_type = slurm.MAIL_JOB_END | slurm.MAIL_JOB_FAIL
        job_desc.bitflags = job_desc.bitflags | slurm.GRES_ENFORCE_BIND
        return slurm.SUCCESS"#;
    let verdict = verify(body, JobSpec::default());
    assert_eq!(verdict.failed, None);
    let spec = verdict.spec.unwrap();
    assert_eq!(spec.account.as_deref(), Some("physics"));
    assert_eq!(spec.partitions, ["long", "batch"]);
    assert_eq!(spec.time_limit, Some(TimeLimit::Minutes(90)));
    let gpu = GresAsk {
        name: "gpu".to_owned(),
        kind: Some("a100".to_owned()),
        count: 2,
    };
    assert_eq!(spec.ask.gres, [gpu]);
    assert_eq!(spec.ask.memory, MemoryAsk::PerCpu(2000));
    assert_eq!((spec.ask.ntasks, spec.ask.min_nodes), (Some(8), 2));
    assert_eq!((spec.priority, spec.nice), (Some(4000), 5));
    assert_eq!(spec.dependency.terms.len(), 1);
    assert_eq!(
        spec.mail,
        MailOptions::of_texts("END,FAIL".to_owned(), String::new())
    );
    let script = verdict.script.unwrap();
    assert_eq!(&script[..], b"#!/bin/sh\n\xff\n# seen\n");
    let context: ExecContext = minicbor::decode(&verdict.context.unwrap()).unwrap();
    let variables: Vec<&[u8]> = context.environment.iter().collect();
    assert_eq!(variables, [b"PATH=/bin".as_slice(), b"ADDED=1"]);
}

#[test]
fn a_refusal_has_its_code_and_lines_and_no_changes() {
    let body = r#"
        job_desc.account = "x"
        slurm.log_user("no account for %s\nask %d", "alice", 7.0)
        slurm.user_msg("50% \27[2J")
        return slurm.ESLURM_INVALID_ACCOUNT"#;
    let verdict = verify(body, JobSpec::default());
    assert_eq!((verdict.code, verdict.spec), (2045, None));
    assert_eq!(verdict.lines, ["no account for alice", "ask 7", "50% ?[2J"]);
}

#[test]
fn wrong_values_are_errors_that_name_the_line_and_the_field() {
    for (body, part) in [
        (
            "job_desc.time_limit = {}",
            "job_desc.time_limit: a number is expected",
        ),
        (
            "job_desc.array_inx = 'x'",
            "job_desc.array_inx: 'x' is not a valid list of tasks",
        ),
        ("job_desc.account = 'a\\0b'", "zero bytes"),
        ("job_desc.account = '\\xff'", "not UTF-8"),
        (
            "job_desc.environment['A=B'] = 'x'",
            "not a valid variable name",
        ),
        ("local x = nil; x.y = 1", "attempt to index a nil value"),
        ("return 'yes'", "it returned string"),
        ("return nil", "it returned nil"),
        ("error({})", ""),
        ("string.rep('x', 1 << 30)", "memory"),
        ("local t = {} while true do t[#t + 1] = {} end", "memory"),
    ] {
        let failed = verify(body, JobSpec::default()).failed.expect(body);
        assert!(failed.contains(part), "{body}: {failed}");
    }
    let failed = verify("\n\nlocal x = nil + 1", JobSpec::default()).failed;
    assert!(failed.unwrap().starts_with("job_submit.lua:4:"));
}

#[test]
fn a_script_that_does_not_end_is_ended_and_the_next_call_is_served() {
    let body = "if job_desc.name == 'loop' then while true do end end return slurm.SUCCESS";
    let (script, _) = submit(body);
    let named = |name: &str| {
        subject(JobSpec {
            name: name.to_owned(),
            ..JobSpec::default()
        })
    };
    let failed = script.verify(&named("loop")).failed.unwrap();
    assert!(failed.contains("it did not end in 200 ms"), "{failed}");
    assert_eq!(script.verify(&named("other")), Verdict::default());
}

#[test]
fn tables_are_asked_for_when_the_script_looks_into_them_and_once() {
    let body = r#"
        local names = {}
        for name, partition in pairs(part_list) do names[#names + 1] = name .. partition.max_time end
        table.sort(names)
        assert(table.concat(names, " ") == "batch60 long6000")
        assert(part_list["long"].max_time == 6000 and part_list.other == nil)
        assert(next(part_list) ~= nil and next(slurm.reservations) == nil)
        assert(slurm.jobs["17"].user_id == 1000)
        assert(slurm.get_qos_priority("normal") == 7 and job_desc.default_account == "physics")
        assert(unpack({ 1, 2 }) == 1 and table.getn({ 1, 2 }) == 2 and math.pow(2, 3) == 8)
        return slurm.SUCCESS"#;
    let (script, host) = submit(body);
    let verdict = script.verify(&subject(JobSpec::default()));
    assert_eq!(verdict.failed, None);
    assert_eq!(host.questions.borrow().len(), 5);
    let (script, host) = submit("return slurm.SUCCESS");
    script.verify(&subject(JobSpec::default()));
    assert!(host.questions.borrow().is_empty());
}

/// One user's many jobs made all submissions fail, since the list of them was the script's memory.
#[test]
fn lists_are_not_the_scripts_memory() {
    let host = Rc::new(Recorder {
        others: 20_000,
        ..Recorder::default()
    });
    let text = r#"
        function slurm_job_modify() return 0 end
        function slurm_job_submit(job_desc)
            local count = 0
            for id in pairs(slurm.jobs) do count = count + 1 end
            if job_desc.name == "full" then string.rep("x", 1 << 25) end
            return count - 20001
        end"#;
    let unhurried = LoadScript {
        time_limit_ms: 60_000,
        ..load(0)
    };
    let script = Script::load(text.as_bytes(), &unhurried, host as _).unwrap();
    let named = |name: &str| {
        subject(JobSpec {
            name: name.to_owned(),
            ..JobSpec::default()
        })
    };
    for _ in 0..2 {
        assert_eq!(script.verify(&named("any")), Verdict::default());
        // What the script makes itself is.
        let failed = script.verify(&named("full")).failed.unwrap();
        assert!(failed.contains("memory"), "{failed}");
    }
}

/// An answer that the process refused was taken for a list without jobs.
#[test]
fn a_list_that_does_not_come_is_no_empty_one() {
    let host = Rc::new(Recorder {
        is_silent: true,
        ..Recorder::default()
    });
    let text = r#"
        function slurm_job_modify() return 0 end
        function slurm_job_submit(job_desc)
            for id in pairs(slurm.jobs) do return 1 end
            return 0
        end"#;
    let script = script_of(text, &host).unwrap();
    let failed = script.verify(&subject(JobSpec::default())).failed.unwrap();
    assert!(
        failed.contains("slurm.jobs: the controller does not answer"),
        "{failed}"
    );
}

/// Each of the variables was searched for among all: a user's 65,536 took longer than a verification may.
#[test]
fn many_variables_are_replaced_at_once() {
    let body = r#"
        local all = { new0 = "n", name1 = false }
        all.name1 = nil
        for name, value in pairs(job_desc.environment) do all[name] = value .. "x" end
        job_desc.environment = all
        return slurm.SUCCESS"#;
    let host = Rc::<Recorder>::default();
    let text = format!(
        "function slurm_job_submit(job_desc)\n{body}\nend\nfunction slurm_job_modify() return 0 end"
    );
    let roomy = LoadScript {
        memory_bytes: 256 << 20,
        ..load(10_000)
    };
    let script = Script::load(text.as_bytes(), &roomy, host as _).unwrap();
    let mut environment = Environment::default();
    for n in 0..65_000 {
        environment.push(&[format!("name{n}=v{n}").as_bytes()]);
    }
    let context = ExecContext {
        environment,
        ..ExecContext::default()
    };
    let subject = Subject {
        context: Some(context.encoded().into()),
        ..subject(JobSpec::default())
    };
    let verdict = script.verify(&subject);
    assert_eq!(verdict.failed, None);
    let changed: ExecContext = minicbor::decode(&verdict.context.unwrap()).unwrap();
    assert_eq!(changed.environment.count(), 65_001);
    assert_eq!(changed.environment.value(b"name7"), Some(&b"v7x"[..]));
    assert_eq!(changed.environment.value(b"new0"), Some(&b"n"[..]));
}

#[test]
fn floods_of_lines_are_cut() {
    let body = r#"
        for i = 1, 100000 do slurm.log_info("line %d", i) slurm.log_user("line") end
        return slurm.ERROR"#;
    let host = Rc::<Recorder>::default();
    let text = format!(
        "function slurm_job_submit()\n{body}\nend\nfunction slurm_job_modify() return 0 end"
    );
    let patient = load(60_000);
    let script = Script::load(text.as_bytes(), &patient, Rc::clone(&host) as _).unwrap();
    let verdict = script.verify(&subject(JobSpec::default()));
    assert_eq!(verdict.lines.len(), USER_LINES_MAX + 1);
    assert_eq!(host.log.borrow().len(), LOG_LINES_MAX + 1);
}

#[test]
fn a_file_with_errors_is_not_loaded() {
    let host = Rc::<Recorder>::default();
    for (text, part) in [
        ("function slurm_job_submit(", "job_submit.lua:1:"),
        (
            "function slurm_job_submit() end",
            "has no function slurm_job_modify",
        ),
        ("error('not today')", "not today"),
        ("\u{1b}Lua", "job_submit.lua"),
    ] {
        let why = script_of(text, &host).err().expect(text);
        assert!(why.contains(part), "{why}");
    }
}

#[test]
fn a_change_shows_what_it_changes_and_can_be_changed() {
    let text = r#"
        function slurm_job_submit() return slurm.SUCCESS end
        function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
            assert(job_desc.time_limit == 600 and job_desc.account == nil and job_desc.num_tasks == slurm.NO_VAL)
            assert(job_desc.cpus_per_task == 4, "only what differs is given")
            assert(job_rec.user_id == 1000 and modify_uid == 1000)
            job_desc.time_limit = 60
            job_desc.comment = "was longer"
            job_desc.num_tasks = 3
            return slurm.SUCCESS
        end"#;
    let host = Rc::<Recorder>::default();
    let script = script_of(text, &host).unwrap();
    let mut asked = subject(JobSpec::default());
    asked.spec.ask.ntasks = Some(2);
    let mut ask = asked.spec.ask.clone();
    ask.cpus_per_task = Some(4);
    asked.change = Some(Box::new(ProposedChange {
        update: JobUpdate {
            time_limit: Some(TimeLimit::Minutes(600)),
            ask: Some(ask),
            ..JobUpdate::default()
        },
        job: Row {
            key: "17".to_owned(),
            fields: vec![("user_id".to_owned(), Value::Number(1000))],
        },
    }));
    let verdict = script.verify(&asked);
    assert_eq!(verdict.failed, None);
    let update = verdict.update.unwrap();
    assert_eq!(update.time_limit, Some(TimeLimit::Minutes(60)));
    assert_eq!(update.comment.as_deref(), Some("was longer"));
    let ask = update.ask.unwrap();
    assert_eq!((ask.ntasks, ask.cpus_per_task), (Some(3), Some(4)));
}
