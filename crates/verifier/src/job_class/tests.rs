//! Classes applied to jobs, and changes of these jobs.

use super::*;
use muster_conf::grid_engine::Mapping;
use muster_conf::job_classes::JobClasses;
use muster_model::grid_engine as marks;
use muster_model::mail::MailOptions;
use muster_model::spec::{Dependency, GresAsk, MemoryAsk, Sharing, StdioSpec};

fn site() -> Site {
    let text = "queue long.q long\npe smp $pe_slots\npe mpi4 4\ncomplex gpu gres:gpu:a100\n\
                complex lic license:matlab\ncomplex big feature:bigmem\nproject p12 physics\n";
    let (mapping, findings) = Mapping::parse(text, "sge.conf");
    assert_eq!(findings, []);
    Site {
        mapping,
        gres: vec!["fpga".to_owned()],
    }
}

fn template(lines: &str) -> Template {
    let (classes, findings) = JobClasses::parse(&format!("jcname c\n{lines}"), "f");
    assert_eq!(findings, []);
    assert_eq!(classes.check(&site().mapping, &site().gres), []);
    classes.template("c").unwrap()
}

fn class(given: &[&str], cleared: &[&str]) -> Option<Box<JobClass>> {
    let own = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    Some(Box::new(JobClass {
        name: "c".to_owned(),
        rules: "p {+}UNSPECIFIED\n".to_owned(),
        given: own(given),
        cleared: own(cleared),
    }))
}

fn job() -> JobSpec {
    JobSpec {
        name: "job".to_owned(),
        work_dir: "/home".to_owned(),
        class: class(&[], &[]),
        ..JobSpec::default()
    }
}

fn applied(lines: &str, spec: JobSpec) -> Result<JobSpec, String> {
    let mut spec = spec;
    apply(&mut spec, &mut None, &template(lines), &site()).map(|()| spec)
}

fn gpus(count: u64) -> Vec<GresAsk> {
    vec![GresAsk {
        name: "gpu".to_owned(),
        kind: Some("a100".to_owned()),
        count,
    }]
}

#[test]
fn a_job_gets_what_its_class_says() {
    let lines = "l_hard h_rt=3600,h_vmem=2G,gpu=2,lic=1,big,exclusive\npe_name mpi4\npe_range 8\nP p12\nq_hard long.q\nN x\n\
                 cwd /tmp\no /log/$JOB_ID.out\nj y\nr n\np -5\nm be\nM a@b\nqos high\nnotify y\nt 1-4\ntc 2\nA text\n";
    let spec = applied(lines, job()).unwrap();
    let ask = &spec.ask;
    assert_eq!(spec.time_limit, Some(TimeLimit::Minutes(60)));
    assert_eq!((ask.memory, &ask.gres), (MemoryAsk::PerCpu(2048), &gpus(2)));
    assert_eq!(spec.licenses.as_deref(), Some("matlab:1"));
    assert_eq!(ask.constraint.as_deref(), Some("bigmem"));
    assert_eq!(ask.sharing, Sharing::Exclusive);
    assert_eq!(
        (ask.ntasks, ask.min_nodes, ask.ntasks_per_node),
        (Some(8), 2, Some(4))
    );
    assert_eq!(spec.account.as_deref(), Some("physics"));
    assert_eq!(spec.partitions, ["long"]);
    assert_eq!((spec.name.as_str(), spec.work_dir.as_str()), ("x", "/tmp"));
    assert_eq!(spec.stdio.stdout.as_deref(), Some("/log/%A.out"));
    assert_eq!((spec.requeue, spec.nice), (Some(false), 5));
    assert_eq!(
        spec.mail,
        MailOptions::of_texts("BEGIN,END".to_owned(), "a@b".to_owned())
    );
    assert_eq!(spec.qos.as_deref(), Some("high"));
    assert_eq!(spec.warn_signal.map(|own| own.signal), Some(12));
    let array = spec.array.as_ref().unwrap();
    assert_eq!((array.indices.iter().count(), array.throttle), (4, Some(2)));
    let kept = spec.class.unwrap();
    assert_eq!(kept.name, "c");
    assert_eq!(
        kept.rules,
        template(lines).text(),
        "what the client sent of rules does not count"
    );
    assert!(kept.given.is_empty() && kept.cleared.is_empty());
}

/// Licenses and devices that are named twice are added up: the second time was another element, or none at all in a change.
/// Other ways to write a license were other licenses, and of alternatives a job may get the one that the class does not say.
#[test]
fn what_a_class_fixes_is_asked_for_once() {
    let lines = "l_hard {...}lic=1,gpu=1\n";
    for licenses in [
        "matlab:1,matlab:50",
        "matlab:1;matlab:1",
        "matlab=50",
        "matlab:1|free:1",
        "free:1|matlab:1",
    ] {
        let asked = with(|spec| spec.licenses = Some(licenses.to_owned()));
        match applied(lines, asked) {
            Err(why) => assert!(why.contains("lic"), "{why}"),
            // No controller takes alternatives and more.
            Ok(spec) => assert_eq!(
                muster_model::licenses::parse_ask(spec.licenses.as_deref().unwrap()),
                None
            ),
        }
    }
    let twice = with(|spec| spec.ask.gres = [gpus(1), gpus(7)].concat());
    assert!(applied(lines, twice).is_err());
    let more = with(|spec| spec.licenses = Some("matlab=1,free:3".to_owned()));
    assert!(applied(lines, more).is_ok());

    let spec = applied(lines, job()).unwrap();
    let check = |change: &dyn Fn(&mut JobUpdate)| {
        let mut update = JobUpdate::default();
        change(&mut update);
        check_update(&spec, &update, &site())
    };
    for licenses in [
        "matlab:1,matlab:1",
        "matlab:1,matlab:9",
        "matlab=2",
        "matlab:1|free:1",
    ] {
        let got = check(&|update| update.licenses = Some(licenses.to_owned()));
        assert!(got.is_err(), "{licenses}");
    }
    let mut ask = spec.ask.clone();
    ask.gres = [gpus(1), gpus(1)].concat();
    assert!(check(&|update| update.ask = Some(ask.clone())).is_err());
    for licenses in ["matlab:1", "matlab=1", "matlab:1,free:2"] {
        let got = check(&|update| update.licenses = Some(licenses.to_owned()));
        assert_eq!(got, Ok(()), "{licenses}");
    }
}

/// Devices have several ways of being counted, of which the greatest counts; and of alternatives that are all the same a job got what
/// they say, where the class's own was cleared.
#[test]
fn what_a_class_fixes_is_asked_for_in_no_other_way() {
    let typed = |kind: Option<&str>, count: u64| {
        let kind = kind.map(str::to_owned);
        vec![GresAsk {
            kind,
            ..gpus(count).remove(0)
        }]
    };
    let fixed = "l_hard {...}gpu=1\n";
    let free = "l_hard {...}{~}gpu=1\n";
    for kind in [Some("a100"), None, Some("h100")] {
        let eight = || typed(kind, 8);
        let devices = |change: &dyn Fn(&mut muster_model::spec::DeviceAsk)| {
            with(|spec| change(spec.ask.devices.get_or_insert_default()))
        };
        let others = [
            devices(&|own| own.per_task = eight()),
            devices(&|own| own.per_job = eight()),
            devices(&|own| own.per_socket = eight()),
        ];
        for other in others {
            let why = applied(fixed, other.clone()).unwrap_err();
            assert!(why.contains("beside l_hard gpu=1"), "{why}");
            assert!(applied(free, other.clone()).is_ok());
            let check = |lines: &str| {
                let spec = applied(lines, job()).unwrap();
                let devices = other.ask.devices.clone();
                let ask = muster_model::spec::ResourceAsk {
                    devices,
                    ..spec.ask.clone()
                };
                let update = JobUpdate {
                    ask: Some(ask),
                    ..JobUpdate::default()
                };
                check_update(&spec, &update, &site())
            };
            assert!(check(fixed).is_err());
            assert_eq!(check(free), Ok(()));
        }
    }
    // Other devices are other things.
    let fpga = || {
        vec![GresAsk {
            name: "fpga".to_owned(),
            kind: None,
            count: 3,
        }]
    };
    let other = with(|spec| spec.ask.devices.get_or_insert_default().per_job = fpga());
    assert!(applied(fixed, other).is_ok());

    let lines = "l_hard {...}{-}lic=1\n";
    let cleared = |licenses: &str| {
        with(|spec| {
            spec.class = class(&[], &["l_hard lic"]);
            spec.licenses = Some(licenses.to_owned());
        })
    };
    for licenses in ["matlab:50|matlab:50", "free:1|matlab:50"] {
        let why = applied(lines, cleared(licenses)).unwrap_err();
        assert!(why.contains("beside l_hard lic=1"), "{why}");
        let spec = applied(lines, job()).unwrap();
        let update = JobUpdate {
            licenses: Some(licenses.to_owned()),
            ..JobUpdate::default()
        };
        assert!(check_update(&spec, &update, &site()).is_err(), "{licenses}");
    }
    assert!(applied(lines, cleared("free:1|other:2")).is_ok());
}

/// A class that fixes an environment of one host let the number of hosts be changed with that of slots.
#[test]
fn an_environment_of_one_host_stays_on_one() {
    let check = |lines: &str, change: &dyn Fn(&mut muster_model::spec::ResourceAsk)| {
        let spec = applied(lines, job()).unwrap();
        let mut ask = spec.ask.clone();
        change(&mut ask);
        let update = JobUpdate {
            ask: Some(ask),
            ..JobUpdate::default()
        };
        check_update(&spec, &update, &site())
    };
    let smp = "pe_name smp\npe_range {~}4\n";
    assert_eq!(check(smp, &|ask| ask.ntasks = Some(3)), Ok(()));
    let hosts = |ask: &mut muster_model::spec::ResourceAsk| {
        (ask.min_nodes, ask.max_nodes) = (2, Some(2));
    };
    let why = check(smp, &hosts).unwrap_err();
    assert!(why.contains("to change pe_name"), "{why}");
    assert!(check(smp, &|ask| ask.max_nodes = None).is_err());
    let of_four = "pe_name mpi4\npe_range {~}4\n";
    assert_eq!(check(of_four, &hosts), Ok(()));
}

/// A job that asks for one thing more.
fn with(change: impl FnOnce(&mut JobSpec)) -> JobSpec {
    let mut spec = job();
    change(&mut spec);
    spec
}

#[test]
fn what_a_class_does_not_allow_is_refused_by_name() {
    let minutes = |n| with(|spec| spec.time_limit = Some(TimeLimit::Minutes(n)));
    let fixed = "l_hard h_rt=3600,{~}gpu=1\n";
    let more = [
        with(|spec| spec.ask.tmp_disk_mib = 5),
        with(|spec| spec.ask.memory = MemoryAsk::PerNode(5)),
        with(|spec| spec.ask.nodelist = Some("n1".to_owned())),
        with(|spec| spec.ask.constraint = Some("bigmem|x".to_owned())),
        with(|spec| spec.ask.sharing = Sharing::Exclusive),
        with(|spec| spec.licenses = Some("matlab:3".to_owned())),
        with(|spec| spec.time_min = Some(TimeLimit::Minutes(1))),
        with(|spec| spec.ask.devices.get_or_insert_default().per_job = gpus(4)),
    ];
    for spec in more {
        let why = applied(fixed, spec.clone()).unwrap_err();
        assert!(why.contains("does not allow to add"), "{why}");
        assert!(applied("l_hard {...}h_rt=3600,{~}gpu=1\n", spec).is_ok());
    }
    for (lines, spec, part) in [
        (fixed, minutes(61), "to change l_hard h_rt=3600 to 3660"),
        (
            "l_hard UNSPECIFIED\n",
            minutes(1),
            "to add h_rt=60 to l_hard",
        ),
        (
            "p -5\n",
            with(|spec| spec.nice = 6),
            "to change p from -5 to -6",
        ),
        (
            "p UNSPECIFIED\n",
            with(|spec| spec.priority = Some(7)),
            "p (a priority of 7)",
        ),
        (
            "q_hard long.q\n",
            with(|spec| spec.partitions = vec!["all".to_owned()]),
            "to change q_hard from long.q to all",
        ),
        (
            "P p12\n",
            with(|spec| spec.account = Some("other".to_owned())),
            "to change P from p12 to other",
        ),
        (
            "N x\n",
            with(|spec| spec.class = class(&["N"], &[])),
            "to change N from x to job",
        ),
        (
            "cwd /tmp\n",
            with(|spec| spec.class = class(&["cwd"], &[])),
            "to change cwd from /tmp to /home",
        ),
        (
            "A UNSPECIFIED\n",
            with(|spec| spec.comment = Some("c".to_owned())),
            "A (c)",
        ),
        (
            "a UNSPECIFIED\n",
            with(|spec| spec.begin = Some(Default::default())),
            "a (given)",
        ),
        (
            "pe_name smp\npe_range 4\n",
            with(|spec| spec.ask.ntasks = Some(8)),
            "to change pe_range from 4 to 8",
        ),
        (
            "pe_name smp\npe_range {~}4\n",
            with(|spec| spec.ask.cpus_per_task = Some(8)),
            "to change pe_name from smp to a layout",
        ),
        (
            "pe_name UNSPECIFIED\n",
            with(|spec| spec.ask.cpus_per_task = Some(8)),
            "pe_name (a layout",
        ),
        (
            "m e\n",
            with(|spec| spec.mail = MailOptions::of_texts("TIME_LIMIT".to_owned(), String::new())),
            "to change m from e to TIME_LIMIT",
        ),
        (
            "j y\n",
            with(|spec| spec.stdio.stderr = Some("/x".to_owned())),
            "to change j from y to n",
        ),
        (
            "qos high\n",
            with(|spec| spec.qos = Some("low".to_owned())),
            "to change qos from high to low",
        ),
        (
            "p -5\n",
            with(|spec| spec.class = class(&[], &["p"])),
            "to clear p",
        ),
        (
            "p {-}-5\n",
            with(|spec| spec.class = class(&[], &["A"])),
            "says nothing of A",
        ),
        (
            "l_hard h_rt=60,{-}gpu=1\n",
            with(|spec| spec.class = class(&[], &["l_hard h_rt"])),
            "to clear l_hard h_rt",
        ),
        (
            "l_hard h_rt=60,{-}gpu=1\n",
            with(|spec| spec.class = class(&[], &["l_hard"])),
            "to clear l_hard",
        ),
    ] {
        let why = applied(lines, spec).unwrap_err();
        assert!(
            why.contains("job class \"c\"") && why.contains(part),
            "{lines}: {why}"
        );
    }
}

#[test]
fn what_a_class_allows_stays_the_users() {
    let spec = with(|spec| {
        spec.time_limit = Some(TimeLimit::Minutes(5));
        spec.ask.gres = gpus(1);
        spec.ask.ntasks = Some(3);
        spec.nice = 7;
        spec.stdio = StdioSpec {
            stdout: Some("/out".to_owned()),
            ..StdioSpec::default()
        };
        spec.class = class(&["N"], &["A", "l_hard lic"]);
    });
    let lines = "l_hard {~}h_rt=3600,gpu=1,{-}lic=1\npe_name smp\npe_range 2-4\np {~}-5\nA {-}text\nN {~}x\no {+}/log\n";
    let spec = applied(lines, spec).unwrap();
    assert_eq!(spec.time_limit, Some(TimeLimit::Minutes(5)));
    assert_eq!((spec.licenses, spec.comment, spec.nice), (None, None, 7));
    assert_eq!((spec.ask.ntasks, spec.ask.max_nodes), (Some(3), Some(1)));
    assert_eq!(
        (spec.name.as_str(), spec.stdio.stdout.as_deref()),
        ("job", Some("/out"))
    );
}

#[test]
fn marks_of_a_client_are_not_believed() {
    let marked = |shown: &[(&str, &str)], change: &dyn Fn(&mut JobSpec)| {
        let mut spec = job();
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        spec.shown = shown.iter().map(own).collect();
        spec.shown
            .push((marks::COMMAND.to_owned(), "qsub".to_owned()));
        change(&mut spec);
        spec
    };
    // It says 4 slots of smp and asks for 64 tasks.
    let lie = marked(&[(marks::PE, "smp 4")], &|spec| spec.ask.ntasks = Some(64));
    assert!(applied("pe_name smp\npe_range 4\n", lie).is_err());
    // It says h_rt=60 and asks for a day.
    let lie = marked(&[(marks::HARD, "h_rt=60")], &|spec| {
        spec.time_limit = Some(TimeLimit::Minutes(1440));
    });
    assert!(applied("l_hard h_rt=60\n", lie).is_err());
    // It says that no file was named.
    let lie = marked(&[], &|spec| spec.stdio.stdout = Some("/etc/x".to_owned()));
    assert!(applied("o UNSPECIFIED\n", lie).is_err());
    let usual = marked(&[], &|spec| {
        spec.stdio.stdout = Some("%x.o%j".to_owned());
        spec.ask.ntasks = Some(1);
    });
    let spec = applied(
        "o UNSPECIFIED\npe_name smp\npe_range 4\nl_hard gpu=1\n",
        usual,
    )
    .unwrap();
    assert_eq!(spec.ask.ntasks, Some(4));
    assert_eq!(marks::value(&spec, marks::PE), Some("smp 4"));
    assert_eq!(marks::value(&spec, marks::HARD), Some("gpu=1"));
}

/// A class that allows 2 to 4 slots let a range begin there and end anywhere.
#[test]
fn a_range_of_slots_is_within_that_of_the_class() {
    let with_range = |last: u32| {
        let mut spec = job();
        spec.shown = vec![(marks::COMMAND.to_owned(), "qsub".to_owned())];
        let mut slots = IndexSet::default();
        slots.insert_range(3, last);
        layout::put(&mut spec, "smp", &slots, &site()).unwrap();
        spec
    };
    let spec = applied("pe_name smp\npe_range 2-4\n", with_range(4)).unwrap();
    assert_eq!((spec.ask.ntasks, spec.ask.most_tasks()), (Some(3), 4));
    let why = applied("pe_name smp\npe_range 2-4\n", with_range(64)).unwrap_err();
    assert!(why.contains("pe_range from 2-4 to 3-64"), "{why}");
    // Who asks for none gets the class's.
    let spec = applied("pe_name smp\npe_range 2-4\n", job()).unwrap();
    assert_eq!((spec.ask.ntasks, spec.ask.most_tasks()), (Some(2), 4));
}

#[test]
fn variables_of_a_class_are_the_jobs() {
    let context = ExecContext {
        environment: [b"A=user".as_slice(), b"B=user"].into_iter().collect(),
        ..ExecContext::default()
    };
    let mut bytes = Some(ByteVec::from(context.encoded()));
    let mut spec = job();
    let template = template("v A=class,{~}B=class,C=class\n");
    apply(&mut spec, &mut bytes, &template, &site()).unwrap();
    let context: ExecContext = minicbor::decode(bytes.as_ref().unwrap()).unwrap();
    let mut all: Vec<&[u8]> = context.environment.iter().collect();
    all.sort_unstable();
    assert_eq!(all, [b"A=class".as_slice(), b"B=user", b"C=class"]);
    let mut held = with(|spec| spec.kind = JobKind::Allocation);
    let why = apply(&mut held, &mut None, &template, &site()).unwrap_err();
    assert!(why.contains("only batch jobs"), "{why}");
}

#[test]
fn changes_follow_the_rules_of_the_submission() {
    let lines = "l_hard {~}h_rt=3600,gpu=1,{-}lic=1\npe_name smp\npe_range {~}4\np {~}-5\nA {-}text\nhold_jid UNSPECIFIED\nM UNSPECIFIED\n";
    let spec = applied(lines, job()).unwrap();
    let check = |change: &dyn Fn(&mut JobUpdate)| {
        let mut update = JobUpdate::default();
        change(&mut update);
        check_update(&spec, &update, &site())
    };
    let ask = |change: &dyn Fn(&mut muster_model::spec::ResourceAsk)| {
        let mut ask = spec.ask.clone();
        change(&mut ask);
        check(&|update| update.ask = Some(ask.clone()))
    };
    assert_eq!(
        check(&|update| update.time_limit = Some(TimeLimit::Minutes(5))),
        Ok(())
    );
    assert_eq!(check(&|update| update.time_delta_min = Some(-5)), Ok(()));
    assert_eq!(check(&|update| update.nice = Some(9)), Ok(()));
    assert_eq!(
        check(&|update| update.licenses = Some(String::new())),
        Ok(())
    );
    assert_eq!(check(&|update| update.qos = Some("any".to_owned())), Ok(()));
    assert_eq!(ask(&|ask| ask.ntasks = Some(3)), Ok(()));
    for (got, part) in [
        (
            check(&|update| update.comment = Some("other".to_owned())),
            "to change A",
        ),
        (
            check(&|update| update.licenses = Some("matlab:2".to_owned())),
            "l_hard lic to 2",
        ),
        (
            check(&|update| update.time_min = Some(TimeLimit::Minutes(1))),
            "time-min",
        ),
        (
            check(&|update| update.shown = vec![("MailUser".to_owned(), "eve".to_owned())]),
            "to change M",
        ),
        (ask(&|ask| ask.gres.clear()), "to remove gpu"),
        (ask(&|ask| ask.gres = gpus(8)), "l_hard gpu to 8"),
        (ask(&|ask| ask.cpus_per_task = Some(8)), "to change pe_name"),
        (ask(&|ask| ask.tmp_disk_mib = 8), "l_hard tmp to 8"),
        (
            check(&|update| {
                let term = muster_model::spec::DependencyTerm::Singleton;
                update.dependency = Some(Dependency {
                    terms: vec![term],
                    any: false,
                });
            }),
            "to change hold_jid",
        ),
    ] {
        let why = got.unwrap_err();
        assert!(why.contains(part), "{part}: {why}");
    }
    let free = JobSpec::default();
    let update = JobUpdate {
        nice: Some(3),
        ..JobUpdate::default()
    };
    assert_eq!(check_update(&free, &update, &site()), Ok(()));
}
