//! Jobs as parameters, and corrections of them.

use super::*;
use muster_conf::grid_engine::AllocationRule;
use muster_model::mail::MailOptions;
use muster_model::spec::{DeviceAsk, Owner};
use muster_proto::jsv::JsvDecision;

fn site() -> Site {
    let text = "queue long.q long\npe smp $pe_slots\npe mpi4 4\ncomplex gpu gres:gpu:a100\n\
                complex lic license:matlab\nproject p12 physics\n";
    let (mapping, findings) = Mapping::parse(text, "sge.conf");
    assert_eq!(findings, []);
    Site {
        mapping,
        gres: vec!["fpga".to_owned()],
    }
}

fn job() -> JobSpec {
    let mut spec = JobSpec {
        name: "job".to_owned(),
        owner: Owner {
            uid: 1000,
            gid: 1000,
            user: "alice".to_owned(),
            group: "users".to_owned(),
        },
        account: Some("physics".to_owned()),
        partitions: vec!["long".to_owned()],
        command: "/home/job.sh".to_owned(),
        argv: vec!["1".to_owned(), "two words".to_owned()],
        work_dir: "/home".to_owned(),
        time_limit: Some(TimeLimit::Minutes(2)),
        nice: 3,
        array: values::array("1-5:2%2"),
        ..JobSpec::default()
    };
    spec.ask.ntasks = Some(4);
    spec.ask.max_nodes = Some(1);
    spec.ask.gres = vec![GresAsk {
        name: "gpu".to_owned(),
        kind: Some("a100".to_owned()),
        count: 2,
    }];
    spec
}

fn subject(spec: JobSpec) -> Subject {
    Subject {
        uid: 1000,
        user: "alice".to_owned(),
        spec,
        script: None,
        context: None,
        component: None,
        change: None,
    }
}

fn corrected(parameters: &[(&str, &str)]) -> Result<JobSpec, String> {
    corrected_of(job(), parameters)
}

fn corrected_of(mut spec: JobSpec, parameters: &[(&str, &str)]) -> Result<JobSpec, String> {
    let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let outcome = Outcome {
        state: JsvDecision::Correct,
        message: String::new(),
        parameters: parameters.iter().map(pair).collect(),
        environment: Vec::new(),
    };
    apply(&mut spec, &mut None, &outcome, &site()).map(|()| spec)
}

#[test]
fn a_job_of_sbatch_has_the_parameters_of_qsub() {
    let asked = asked(&subject(job()), &site());
    let lines: Vec<String> = asked
        .parameters
        .iter()
        .map(|(n, v)| format!("{n} {v}"))
        .collect();
    let expected = [
        "VERSION 1.0",
        "CONTEXT server",
        "CLIENT qmaster",
        "USER alice",
        "GROUP users",
        "CMDNAME /home/job.sh",
        "CMDARGS 2",
        "CMDARG0 1",
        "CMDARG1 two words",
        "cwd /home",
        "j y",
        "l_hard h_rt=120,gpu=2",
        "N job",
        "p -3",
        "P p12",
        "pe_name smp",
        "pe_min 4",
        "pe_max 4",
        "q_hard long.q",
        "t_min 1",
        "t_max 5",
        "t_step 2",
        "tc 2",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn corrections_are_the_jobs() {
    let spec = corrected(&[
        ("l_hard", "h_rt=1:0:0,gpu=1,lic=2,h_vmem=2G"),
        ("N", "new"),
        ("P", ""),
        ("q_hard", "long.q,night"),
        ("pe_name", "mpi4"),
        ("pe_min", "8"),
        ("p", "-10"),
        ("t_max", "9"),
        ("CMDARGS", "3"),
        ("CMDARG2", "x"),
        ("m", "be"),
        ("M", "a@b"),
        ("hold_jid", "7,8"),
    ])
    .unwrap();
    assert_eq!(spec.time_limit, Some(TimeLimit::Minutes(60)));
    assert_eq!(
        (spec.ask.gres[0].count, spec.licenses.as_deref()),
        (1, Some("matlab:2"))
    );
    assert_eq!(spec.ask.memory, MemoryAsk::PerCpu(2048));
    assert_eq!(
        (spec.name.as_str(), spec.account.as_ref(), spec.nice),
        ("new", None, 10)
    );
    assert_eq!(spec.partitions, ["long", "night"]);
    let ask = &spec.ask;
    assert_eq!(
        (ask.ntasks, ask.min_nodes, ask.ntasks_per_node),
        (Some(8), 2, Some(4))
    );
    assert_eq!(
        spec.array.unwrap().indices.iter().collect::<Vec<_>>(),
        [1, 3, 5, 7, 9]
    );
    assert_eq!(spec.argv, ["1", "two words", "x"]);
    assert_eq!(
        spec.mail,
        MailOptions::of_texts("BEGIN,END".to_owned(), "a@b".to_owned())
    );
    assert_eq!(spec.dependency.terms.len(), 2);
    // What is not named stays, types of devices too.
    assert_eq!(corrected(&[("N", "job")]).unwrap(), job());
    assert_eq!(corrected(&[("l_hard", "h_rt=120,gpu=2")]).unwrap(), job());
}

#[test]
fn what_cannot_be_changed_is_named() {
    for (name, value, part) in [
        ("ckpt", "x", "ckpt"),
        ("l_hard", "nosuch=1", "unknown resource \"nosuch\""),
        ("l_hard", "h_rt=x", "not a time value"),
        ("l_hard", "h=n1", "hostname"),
        ("p", "5000", "-1023 to 1024"),
        ("pe_name", "nosuch", "nosuch"),
        ("pe_min", "x", "a number is expected"),
        ("t_max", "x", "tasks"),
        ("t_step", "0", "tasks"),
        ("CMDARG7", "x", "CMDARG7"),
        ("CMDARGS", "99999999", "CMDARGS"),
        ("q_hard", "*.q", "names of queues"),
        ("r", "maybe", "y or n"),
        ("m", "x", "letters"),
        ("hold_jid", "x y", "hold_jid"),
    ] {
        let why = corrected(&[(name, value)]).unwrap_err();
        assert!(why.contains(part), "{name}={value}: {why}");
    }
}

/// What a job asks for was what its client said of it, which a hostile one chose.
#[test]
fn what_a_client_says_counts_where_the_job_asks_for_it() {
    let mark = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let value = |spec: &JobSpec, name: &str| {
        let asked = asked(&subject(spec.clone()), &site());
        let found = asked.parameters.iter().find(|(own, _)| own == name);
        found.map(|(_, value)| value.clone()).unwrap_or_default()
    };
    let mut spec = job();
    spec.shown = vec![
        mark(marks::COMMAND, "qsub"),
        mark(marks::HARD, "rt=0:1:59,gpu=2"),
        mark(marks::PE, "smp 4"),
    ];
    assert_eq!(value(&spec, "l_hard"), "rt=0:1:59,gpu=2");
    spec.time_limit = Some(TimeLimit::Unlimited);
    spec.ask.memory = MemoryAsk::PerNode(1000);
    spec.ask.sharing = Sharing::Exclusive;
    spec.licenses = Some("matlab:3".to_owned());
    spec.ask.ntasks = Some(16);
    let asks = "h_rt=INFINITY,h_vmem=63M,exclusive=true,lic=3,gpu=2";
    assert_eq!(value(&spec, "l_hard"), asks);
    assert_eq!(
        (value(&spec, "pe_name"), value(&spec, "pe_min")),
        ("smp".into(), "16".into())
    );
}

/// A soft limit beside it had the hard one taken for what the client said.
#[test]
fn a_soft_limit_hides_no_hard_one() {
    let hard = |minutes: u32, given: &str| {
        let mut spec = job();
        let mark = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        spec.shown = vec![mark(marks::COMMAND, "qsub"), mark(marks::HARD, given)];
        spec.time_limit = Some(TimeLimit::Minutes(minutes));
        let asked = asked(&subject(spec), &site());
        let found = asked.parameters.iter().find(|(own, _)| own == "l_hard");
        found.map(|(_, value)| value.clone()).unwrap_or_default()
    };
    for honest in ["h_rt=120,s_rt=60,gpu=2", "s_rt=60,gpu=2"] {
        assert_eq!(hard(2, honest), honest);
        assert_eq!(hard(43_200, honest), "h_rt=2592000,gpu=2");
    }
    assert_eq!(hard(2, "s_rt=x,gpu=2"), "h_rt=120,gpu=2");
}

/// Of an element that a list had twice, or by two of its names, the last was compared, and verifiers read the first.
#[test]
fn a_request_that_is_given_twice_hides_nothing() {
    let hard = |given: &str, change: &dyn Fn(&mut JobSpec)| {
        let mut spec = job();
        let mark = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        spec.shown = vec![mark(marks::COMMAND, "qsub"), mark(marks::HARD, given)];
        change(&mut spec);
        let asked = asked(&subject(spec), &site());
        let found = asked.parameters.iter().find(|(own, _)| own == "l_hard");
        found.map(|(_, value)| value.clone()).unwrap_or_default()
    };
    let long = |spec: &mut JobSpec| spec.time_limit = Some(TimeLimit::Minutes(43_200));
    for given in [
        "h_rt=60,h_rt=2592000,gpu=2",
        "h_rt=60,rt=2592000,gpu=2",
        "h_rt=60,gpu=2,rt=2592000",
    ] {
        assert_eq!(hard(given, &long), "h_rt=2592000,gpu=2", "{given}");
    }
    let soft = "s_rt=60,s_rt=120,h_rt=120,gpu=2";
    assert_eq!(hard(soft, &|_| {}), "h_rt=120,gpu=2");
    let large = |spec: &mut JobSpec| spec.ask.memory = MemoryAsk::PerCpu(102_400);
    for given in [
        "h_rt=120,h_vmem=1G,mem=100G,gpu=2",
        "h_rt=120,h_vmem=1G,h_vmem=100G,gpu=2",
    ] {
        assert_eq!(
            hard(given, &large),
            "h_rt=120,h_vmem=102400M,gpu=2",
            "{given}"
        );
    }
    let eight = |spec: &mut JobSpec| spec.ask.gres[0].count = 8;
    for given in [
        "h_rt=120,gpu=1,gpu=7",
        "h_rt=120,gpu=1,gpus=7",
        "h_rt=120,gpu=1,gpu=8",
    ] {
        assert_eq!(hard(given, &eight), "h_rt=120,gpu=8", "{given}");
    }
    let four = |spec: &mut JobSpec| spec.ask.gres[0].count = 4;
    assert_eq!(
        hard("h_rt=120,gpu=2,gpu=2", &four),
        "h_rt=120,gpu=4",
        "equal counts are added up"
    );
}

/// Of a job with one limit by two names, as is usual, a verifier was given one name alone: a check of `mem_free` found nothing.
#[test]
fn a_request_by_two_names_is_seen_by_both() {
    let hard = |given: &str| {
        let mut spec = job();
        let mark = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        spec.shown = vec![mark(marks::COMMAND, "qsub"), mark(marks::HARD, given)];
        spec.ask.memory = MemoryAsk::PerCpu(4096);
        let asked = asked(&subject(spec), &site());
        let found = asked.parameters.iter().find(|(own, _)| own == "l_hard");
        found.map(|(_, value)| value.clone()).unwrap_or_default()
    };
    for given in [
        "h_rt=120,h_vmem=4G,mem_free=4G,gpu=2",
        "h_rt=120,mem_free=4096M,gpu=2,h_vmem=4G",
        "h_rt=120,s_rt=60,s_rt=60,h_vmem=4G,gpu=2",
    ] {
        assert_eq!(hard(given), given);
    }
    for given in [
        "h_rt=120,h_vmem=2G,mem_free=4G,gpu=2",
        "h_rt=120,h_vmem=4G,mem_free=2G,gpu=2",
    ] {
        assert_eq!(hard(given), "h_rt=120,h_vmem=4096M,gpu=2", "{given}");
    }
}

/// What the controller adds up a verifier was given in parts, with the first as the whole; and of two types of a device the first.
#[test]
fn a_verifier_sees_what_requests_come_to() {
    let of = |kind: Option<&str>, count: u64| GresAsk {
        name: "gpu".to_owned(),
        kind: kind.map(str::to_owned),
        count,
    };
    let list = |change: &dyn Fn(&mut JobSpec)| {
        let mut spec = job();
        spec.ask.gres.clear();
        spec.time_limit = None;
        change(&mut spec);
        let asked = asked(&subject(spec), &site());
        let found = asked.parameters.iter().find(|(own, _)| own == "l_hard");
        found.map(|(_, value)| value.clone()).unwrap_or_default()
    };
    let licenses = |text: &str| list(&|spec| spec.licenses = Some(text.to_owned()));
    assert_eq!(licenses("matlab:1,matlab:50"), "lic=51");
    assert_eq!(licenses("matlab;matlab=50"), "lic=51");
    assert_eq!(licenses("free:1,free:50"), "license:free=51");
    let (a100, h100) = (Some("a100"), Some("h100"));
    let gres = |all: &[GresAsk]| list(&|spec| spec.ask.gres = all.to_vec());
    assert_eq!(gres(&[of(None, 1), of(None, 7)]), "gpu=8");
    assert_eq!(gres(&[of(a100, 1), of(a100, 7)]), "gpu=8");
    assert_eq!(gres(&[of(h100, 1), of(h100, 7)]), "gpu:h100=8");
    let two = vec![of(h100, 1), of(a100, 8), of(h100, 1)];
    for (own, change) in [
        (
            "task",
            (|d, l| d.per_task = l) as fn(&mut DeviceAsk, Vec<GresAsk>),
        ),
        ("job", |d, l| d.per_job = l),
        ("socket", |d, l| d.per_socket = l),
    ] {
        let list = list(&|spec| change(spec.ask.devices.get_or_insert_default(), two.clone()));
        assert_eq!(list, format!("gpu:h100-per-{own}=2,gpu:a100-per-{own}=8"));
    }
}

/// A verifier that bounds devices did not see those of a type or of the whole job, which sbatch can ask for, nor licenses without
/// a complex; and where it changed others, they were gone.
#[test]
fn devices_and_licenses_without_a_complex_are_seen() {
    let of = |name: &str, kind: Option<&str>, count: u64| GresAsk {
        name: name.to_owned(),
        kind: kind.map(str::to_owned),
        count,
    };
    let mut spec = job();
    spec.ask.gres.push(of("gpu", Some("h100"), 8));
    let devices = spec.ask.devices.get_or_insert_default();
    devices.per_job = vec![of("gpu", None, 16)];
    devices.per_task = vec![of("gpu", Some("h100"), 1)];
    spec.licenses = Some("secret:3,matlab:1".to_owned());
    let seen = asked(&subject(spec.clone()), &site());
    let (_, list) = seen
        .parameters
        .iter()
        .find(|(own, _)| own == "l_hard")
        .unwrap();
    let own = "gpu:h100=8,gpu:h100-per-task=1,gpu-per-job=16,license:secret=3";
    let hard = format!("h_rt=120,lic=1,gpu=2,{own}");
    assert_eq!(*list, hard);
    // What was not changed stays as it was, and cannot be left out.
    let same = corrected_of(spec.clone(), &[("l_hard", &hard)]).unwrap();
    assert_eq!(same, spec);
    let list = format!("{own},h_rt=120,lic=2,gpu=1");
    let less = corrected_of(spec.clone(), &[("l_hard", &list)]).unwrap();
    assert_eq!(less.licenses.as_deref(), Some("matlab:2,secret:3"));
    assert_eq!(
        less.ask
            .gres
            .iter()
            .map(|own| own.count)
            .collect::<Vec<_>>(),
        [1, 8]
    );
    assert_eq!(less.ask.devices, spec.ask.devices);
    let why = corrected_of(spec, &[("l_hard", "h_rt=120,lic=1,gpu=2")]).unwrap_err();
    assert!(why.contains("gpu-per-job=16"), "{why}");
}

/// Each changed variable copied the whole environment: one submission kept the controller for minutes.
#[test]
fn variables_are_changed_in_one_go() {
    let own: Environment = ["A=1", "B=2", "C=3", "A=4"]
        .map(str::as_bytes)
        .into_iter()
        .collect();
    let change = |name: &str, value: Option<&str>| (name.to_owned(), value.map(str::to_owned));
    let changes = [
        change("B", None),
        change("A", Some("new")),
        change("X", None),
        change("D", Some("added")),
    ];
    let changed = changed(&own, &changes);
    let texts: Vec<&[u8]> = changed.iter().collect();
    assert_eq!(texts, ["A=new", "C=3", "D=added"].map(str::as_bytes));
    let many: Environment = (0..20_000)
        .map(|n| format!("V{n}={}", "x".repeat(200)))
        .collect::<Vec<String>>()
        .iter()
        .map(|text| text.as_bytes())
        .collect();
    let all: Vec<(String, Option<String>)> = (0..10_000)
        .map(|n| change(&format!("V{}", 2 * n), None))
        .collect();
    assert_eq!(super::changed(&many, &all).iter().count(), 10_000);
}

#[test]
fn a_job_of_qsub_is_seen_as_it_is_and_not_as_its_client_says() {
    let mut spec = job();
    spec.shown
        .push((marks::COMMAND.to_owned(), "qsub".to_owned()));
    let seen = |spec: &JobSpec| {
        let all = asked(&subject(spec.clone()), &site()).parameters;
        let value = |name: &str| {
            let found = all.iter().find(|(own, _)| own == name);
            found.map_or_else(String::new, |(_, value)| value.clone())
        };
        (value("l_hard"), value("pe_name"), value("pe_min"))
    };
    let own =
        |hard: &str, pe: &str, slots: &str| (hard.to_owned(), pe.to_owned(), slots.to_owned());
    (spec.ask.ntasks, spec.ask.max_nodes, spec.ask.nodes_set) = (Some(4), Some(1), true);
    let mut honest = spec.clone();
    honest
        .shown
        .push((marks::HARD.to_owned(), "h_rt=0:2:0,gpu=2,h=n1".to_owned()));
    honest
        .shown
        .push((marks::PE.to_owned(), "smp 4".to_owned()));
    assert_eq!(seen(&honest), own("h_rt=0:2:0,gpu=2,h=n1", "smp", "4"));
    let mut lies = spec;
    lies.shown
        .push((marks::HARD.to_owned(), "h_rt=60,gpu=1".to_owned()));
    lies.shown.push((marks::PE.to_owned(), "smp 1".to_owned()));
    assert_eq!(seen(&lies), own("h_rt=120,gpu=2", "smp", "4"));
}

/// A verifier saw the least number alone, and let through what may become any number.
#[test]
fn a_range_of_slots_is_seen_and_changed() {
    let of = |parameters: &[(&str, &str)]| {
        let mut spec = job();
        spec.shown = vec![(marks::COMMAND.to_owned(), "qsub".to_owned())];
        layout::put(&mut spec, "smp", &range(2, 8), &site()).unwrap();
        corrected_of(spec, parameters).map(|spec| {
            let marked = marks::parallel_environment(&spec);
            let marked = marked.map(|(name, slots)| format!("{name} {slots}"));
            let seen = asked(&subject(spec.clone()), &site()).parameters;
            let span = ["pe_min", "pe_max"].map(|name| {
                let found = seen.iter().find(|(own, _)| own == name);
                found.map_or(String::new(), |(_, value)| value.clone())
            });
            (marked.unwrap_or_default(), span.join(" "))
        })
    };
    let is = |marked: &str, span: &str| Ok((marked.to_owned(), span.to_owned()));
    assert_eq!(of(&[]), is("smp 2-8", "2 8"));
    assert_eq!(of(&[("pe_max", "4")]), is("smp 2-4", "2 4"));
    assert_eq!(of(&[("pe_min", "6")]), is("smp 6-8", "6 8"));
    assert_eq!(of(&[("pe_min", "9")]), is("smp 9", "9 9"));
    assert_eq!(of(&[("pe_max", "1")]), is("smp 1", "1 1"));
    assert_eq!(
        of(&[("pe_name", "mpi4"), ("pe_min", "3"), ("pe_max", "14")]),
        is("mpi4 4-12", "4 12")
    );
    assert!(of(&[("pe_min", "5"), ("pe_max", "4")]).is_err());
    assert!(of(&[("pe_name", "mpi4"), ("pe_max", "3")]).is_err());
    // Who says nothing of it is seen by the most, too.
    let mut spec = job();
    spec.ask.max_nodes = None;
    let range = AllocationRule::FillUp.tasks_of(&range(4, 64)).unwrap().1;
    spec.ask.task_range = range.map(Box::new);
    let seen = asked(&subject(spec), &site()).parameters;
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert!(seen.contains(&pair("pe_max", "64")), "{seen:?}");
}

fn range(first: u32, last: u32) -> IndexSet {
    let mut slots = IndexSet::default();
    slots.insert_range(first, last);
    slots
}

/// A request of a few bytes that names billions of tasks, with a gap or without, was gone through task by task.
#[test]
fn tasks_are_compared_by_ranges() {
    let mut indices = IndexSet::single(0);
    indices.insert_range(1, u32::MAX - 20);
    assert_eq!(regular(&indices), Some((0, u32::MAX - 20, 1)));
    indices.insert(u32::MAX - 17);
    assert_eq!(regular(&indices), None);
    let spec = JobSpec {
        array: Some(ArraySpec {
            indices,
            throttle: None,
        }),
        ..job()
    };
    let text = crate::job_class::attribute::value(&spec, "t", &site(), &[]);
    assert_eq!(text.as_deref(), Some("0-4294967275,4294967278-4294967278"));
    let of = |list: &str| regular(&values::indices(list).expect("a list"));
    assert_eq!(of("7"), Some((7, 7, 1)));
    assert_eq!(of("1,3,5"), Some((1, 5, 2)));
    assert_eq!(of("1,3,6"), None);
    assert_eq!(of("1-3,5"), None);
    assert_eq!(of("1,3-4"), None);
}
