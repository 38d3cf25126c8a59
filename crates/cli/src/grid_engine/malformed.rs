//! A test: a hundred lines that are wrong, of scripts (`#$`), requests (`-l`), parallel environments (`-pe`) and verifiers (JSV).
//! Each gets an error that names its mistake.

use super::arguments::UsageError;
use super::defaults;
use super::request::{Refused, Request};
use muster_conf::grid_engine::Mapping;
use muster_conf::grid_engine::resources::Resources;
use muster_proto::jsv::{JsvRequest, Verification};

/// The error of a line of options in a script, if it is wrong.
fn of_script(line: &str) -> Option<String> {
    let script = format!("#!/bin/sh\n#$ -N ok\n#$ {line}\ntrue\n");
    let places = match defaults::from_script(&script, "job.sh", "#$") {
        Ok(places) => places,
        Err(found) => {
            assert_eq!(found.place, "job.sh, line 3", "{line}");
            return Some(match found.wrong {
                UsageError::Usage(text) | UsageError::Refused(text) => text,
            });
        }
    };
    let mut request = Request::default();
    for given in places.iter().flat_map(|place| &place.options) {
        match request.take(given) {
            Ok(()) => {}
            Err(Refused::Line(text, _) | Refused::Job(text)) => return Some(text),
        }
    }
    let mut all = Resources::default();
    let requests = request.hard.iter().chain(&request.soft);
    for (name, value) in requests {
        if let Err(text) = all.add((name, value.as_deref()), &Mapping::default(), &[]) {
            return Some(text);
        }
    }
    None
}

/// The error of a line of a verifier, where it has begun or (`+`) where it is to answer.
fn of_verifier(line: &str) -> Option<String> {
    let (mut verification, _) = Verification::begin(JsvRequest::default());
    let line = match line.strip_prefix('+') {
        Some(line) => {
            verification.take("STARTED").expect("it is the protocol's");
            line
        }
        None => line,
    };
    verification.take(line).err()
}

/// Options in a script, and a word that the error must have.
const OPTIONS: [(&str, &str); 51] = [
    ("-R x", "-R"),
    ("-binding x", "-binding"),
    ("-binding linear:0", "linear:0"),
    ("-binding striding:1 -cwd", "striding:1"),
    ("-nonsense", "-nonsense"),
    ("-N", "-N"),
    ("-N 1bad", "1bad"),
    ("-N a/b", "-N"),
    ("-N a:b", "objectname"),
    ("-N a@b", "a@b"),
    ("-P none", "NONE"),
    ("-P 9", "9"),
    ("-p 2000", "2000"),
    ("-p -2000", "-2000"),
    ("-p high", "high"),
    ("-p 1.5", "1.5"),
    ("-t 0-3", "0"),
    ("-t 1-", "1-"),
    ("-t 1-4:0", "1-4:0"),
    ("-t a", "\"a\""),
    ("-t 1,3", "1,3"),
    ("-t +1-3", "+1-3"),
    ("-t 1-99999999999", "1-99999999999"),
    ("-tc x", "\"x\""),
    ("-tc -1", "-1"),
    ("-b maybe", "maybe"),
    ("-j 1", "-j"),
    ("-r", "-r"),
    ("-r perhaps", "perhaps"),
    ("-sync 2", "-sync"),
    ("-m bx", "bx"),
    ("-w x", "-w"),
    ("-w ee", "ee"),
    ("-a tomorrow", "tomorrow"),
    ("-a 13312359", "13312359"),
    ("-a 0101", "0101"),
    ("-v =1", "=1"),
    ("-v A,,B", "A,,B"),
    ("-o host:", "host:"),
    ("-q ,", "-q"),
    ("-hold_jid ,", "-hold_jid"),
    ("-M ,", "-M"),
    ("-N 'open", "unmatched"),
    ("-cwd here", "here"),
    ("-clear -zz", "-zz"),
    ("job.sh", "job.sh"),
    ("-pe", "-pe"),
    ("-pe smp", "-pe"),
    ("-l", "-l"),
    ("-shell maybe", "maybe"),
    ("-now soon", "soon"),
];

/// Requests of `-l`.
const REQUESTS: [(&str, &str); 29] = [
    ("=5", "=5"),
    ("gpu=1,", "gpu=1,"),
    (",gpu=1", ",gpu=1"),
    ("gpu=1,,h_rt=5", "gpu=1,,h_rt=5"),
    ("nosuch=1", "nosuch"),
    ("nosuch", "nosuch"),
    ("h_rt", "h_rt"),
    ("h_rt=", "h_rt"),
    ("h_rt=abc", "h_rt"),
    ("h_rt=1:2:3:4", "h_rt"),
    ("h_rt=-5", "h_rt"),
    ("h_rt=:", "h_rt"),
    ("h_rt=99999999999999999999", "h_rt"),
    ("s_rt=1h", "s_rt"),
    ("h_vmem", "h_vmem"),
    ("h_vmem=", "h_vmem"),
    ("h_vmem=2GB", "h_vmem"),
    ("h_vmem=2X", "h_vmem"),
    ("h_vmem=-1G", "h_vmem"),
    ("h_vmem=1e3", "h_vmem"),
    ("mem_free=lots", "mem_free"),
    ("mem_free=999999999999T", "mem_free"),
    ("gpu=two", "gpu"),
    ("gpu=-1", "gpu"),
    ("gpu=+1", "gpu"),
    ("num_proc=x", "num_proc"),
    ("exclusive=perhaps", "exclusive"),
    ("arch=vax", "vax"),
    ("h_fsize=1G", "h_fsize"),
];

/// Slots of a parallel environment.
const SLOTS: [(&str, &str); 16] = [
    ("smp 0", "pe range"),
    ("smp 0-4", "pe range"),
    ("smp x", "\"x\""),
    ("smp -", "\"-\""),
    ("smp 1-2-3", "1-2-3"),
    ("smp 1.5", "1.5"),
    ("smp 4-x", "4-x"),
    ("smp ,", "\",\""),
    ("smp 2,x", "2,x"),
    ("2 smp", "\"smp\""),
    ("smp 99999999999", "99999999999"),
    ("smp +4", "+4"),
    ("smp 2-8,", "2-8,"),
    ("smp 2--8", "2--8"),
    ("smp 2,4-8,0", "pe range"),
    ("smp 2:8", "2:8"),
];

/// Lines of verifiers.
const LINES: [(&str, &str); 20] = [
    ("HELLO", "HELLO"),
    ("started", "started"),
    ("SEND", "SEND"),
    ("SEND FILES", "SEND"),
    ("PARAM N x", "PARAM"),
    ("RESULT STATE ACCEPT", "RESULT"),
    ("ERROR broken", "ERROR"),
    ("LOG", "LOG"),
    ("LOG DEBUG x", "LOG"),
    ("+HELLO", "HELLO"),
    ("+STARTED", "STARTED"),
    ("+SEND ENV", "SEND"),
    ("+PARAM", "\"\""),
    ("+PARAM USER root", "USER"),
    ("+PARAM CLIENT qsub", "CLIENT"),
    ("+ENV SET A b", "SET"),
    ("+ENV ADD", "ADD"),
    ("+ENV ADD A=b c", "ADD"),
    ("+RESULT ACCEPT", "ACCEPT"),
    ("+RESULT STATE MAYBE", "MAYBE"),
];

#[test]
fn a_hundred_malformed_lines_are_named() {
    let mut wrong: Vec<String> = Vec::new();
    let mut named = |line: &str, found: Option<String>, word: &str| match found {
        Some(text) if text.contains(word) => {}
        Some(text) => wrong.push(format!("{line:?}: {text:?} does not name {word:?}")),
        None => wrong.push(format!("{line:?} is accepted")),
    };
    for (line, word) in OPTIONS {
        named(line, of_script(line), word);
    }
    for (request, word) in REQUESTS {
        for line in [format!("-l {request}"), format!("-hard -l {request} -cwd")] {
            named(&line, of_script(&line), word);
        }
    }
    for (slots, word) in SLOTS {
        let line = format!("-pe {slots}");
        named(&line, of_script(&line), word);
    }
    for (line, word) in LINES {
        named(line, of_verifier(line), word);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let lines = OPTIONS.len() + REQUESTS.len() + SLOTS.len() + LINES.len();
    assert!(lines >= 100, "{lines} lines");
}
