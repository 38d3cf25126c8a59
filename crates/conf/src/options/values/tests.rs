//! Values of options: what is read, what is refused, and that it is written as it was read.

use super::*;
use proptest::prelude::*;

#[test]
fn counts_and_nodes() {
    assert_eq!(count("1k"), Some(1024));
    assert_eq!(count("2M"), Some(2 * 1024 * 1024));
    for bad in ["", "k", "x", "-1", "1.5", "4294967295", "9999999999"] {
        assert_eq!(count(bad), None, "{bad}");
    }
    assert_eq!(nodes("2"), Ok((2, 2)));
    assert_eq!(nodes("2-4"), Ok((2, 4)));
    assert_eq!(nodes("0-4"), Ok((1, 4)));
    assert_eq!(nodes("0"), Ok((1, 0)));
    assert_eq!(nodes("1k"), Ok((1024, 1024)));
    assert_eq!(
        nodes("a").unwrap_err().lines,
        ["\"a\" is not a valid node count"]
    );
    assert_eq!(
        nodes("3-1").unwrap_err().lines,
        ["Maximum node count 1 is less than minimum node count 3"]
    );
    assert_eq!(
        number("ntasks", "0", 1).unwrap_err().lines,
        ["Invalid numeric value \"0\" for --ntasks."]
    );
}

#[test]
fn arrays() {
    let list = |t: &str| array(t).map(|a| (a.indices.iter().collect::<Vec<_>>(), a.throttle));
    assert_eq!(list("0-3%2"), Some((vec![0, 1, 2, 3], Some(2))));
    assert_eq!(list("0-1%0"), Some((vec![0, 1], None)));
    assert_eq!(list("0-15:4"), Some((vec![0, 4, 8, 12], None)));
    assert_eq!(list("1,3,5-7"), Some((vec![1, 3, 5, 6, 7], None)));
    assert_eq!(list("[2-3]"), Some((vec![2, 3], None)));
    for bad in [
        "5-1", "", "a", "1-", "-1", "1-3:0", "1%a", "1%", "[1", "1,,2", "1-2-3",
    ] {
        assert!(array(bad).is_none(), "{bad}");
    }
    assert_eq!(array("0-4000000000").unwrap().indices.len(), 4_000_000_001);
}

/// Each range was bounded, and their number was not: a line of text took minutes.
#[test]
fn ranges_with_strides_are_bounded_together() {
    assert!(array("0-8000:2,0-8000:3").is_some());
    assert!(array("0-1000000:2").is_some());
    assert!(array("0-1000002:2").is_none());
    let many = vec!["0-8000000:2"; 500].join(",");
    assert!(array(&many).is_none());
}

#[test]
fn dependencies() {
    let d = dependency("afterok:1:2_3,after:4+5,singleton").unwrap();
    assert!(!d.any);
    assert_eq!(
        d.terms,
        [
            DependencyTerm::Job {
                kind: DependencyKind::AfterOk,
                job: JobId(1),
                task: None,
                delay_minutes: 0
            },
            DependencyTerm::Job {
                kind: DependencyKind::AfterOk,
                job: JobId(2),
                task: Some(3),
                delay_minutes: 0
            },
            DependencyTerm::Job {
                kind: DependencyKind::After,
                job: JobId(4),
                task: None,
                delay_minutes: 5
            },
            DependencyTerm::Singleton,
        ]
    );
    assert!(dependency("afterany:1?afterok:2").unwrap().any);
    assert_eq!(dependency("12").unwrap().terms.len(), 1);
    assert!(dependency("").unwrap().terms.is_empty());
    for bad in [
        "afterok",
        "afterok:",
        "afterok:x",
        "afterburstbuffer:1",
        "expand:1",
        "sometime:1",
        "afterok:1+5",
        "afterok:1,afterok:2?afterok:3",
        "afterok:0",
    ] {
        assert!(dependency(bad).is_err(), "{bad}");
    }
}

#[test]
fn signals() {
    assert_eq!(signal("USR1"), Some(10));
    assert_eq!(signal("sigterm"), Some(15));
    assert_eq!(signal("9"), Some(9));
    assert_eq!(signal("0"), None);
    assert_eq!(signal("FOO"), None);
    let w = warn_signal("B:USR2@30").unwrap();
    assert_eq!((w.signal, w.before_s, w.batch_only), (12, 30, true));
    let w = warn_signal("10").unwrap();
    assert_eq!((w.signal, w.before_s, w.batch_only), (10, 60, false));
    assert!(warn_signal("RB:USR1@5").is_some());
    for bad in ["foo", "B:", "USR1@", "X:USR1", "USR1@99999"] {
        assert!(warn_signal(bad).is_none(), "{bad}");
    }
}

#[test]
fn devices() {
    let ask = |name: &str, kind: Option<&str>, count| GresAsk {
        name: name.to_owned(),
        kind: kind.map(str::to_owned),
        count,
    };
    assert_eq!(gres("gpu"), Some(vec![ask("gpu", None, 1)]));
    assert_eq!(gres("gpu:2"), Some(vec![ask("gpu", None, 2)]));
    assert_eq!(
        gres("gpu:a100:2,nic:1"),
        Some(vec![ask("gpu", Some("a100"), 2), ask("nic", None, 1)])
    );
    assert_eq!(
        gres("gres/gpu:tesla"),
        Some(vec![ask("gpu", Some("tesla"), 1)])
    );
    assert_eq!(gres("gpu:0"), Some(vec![]));
    assert_eq!(gres("none"), Some(vec![]));
    assert_eq!(gpus("a100:3"), Some(vec![ask("gpu", Some("a100"), 3)]));
    assert_eq!(gpus("a100"), Some(vec![ask("gpu", Some("a100"), 1)]));
    assert_eq!((gpus("-1"), gpus("2x")), (None, None));
    for bad in ["", ":", "gpu:", "gpu:a:b:c", "gpu,,x", "gpu:a:b"] {
        assert!(gres(bad).is_none(), "{bad}");
    }
}

#[test]
fn distributions() {
    for good in [
        "block",
        "cyclic:block",
        "plane=4",
        "*",
        "block:cyclic:fcyclic",
        "arbitrary",
        "block,Pack",
    ] {
        assert!(distribution_is_known(good), "{good}");
    }
    for bad in ["", "foo", "plane=0", "block:plane=2", "block,x"] {
        assert!(!distribution_is_known(bad), "{bad}");
    }
    assert!(mail_type_is_known("BEGIN,end") && !mail_type_is_known("foo"));
    let asked = SwitchAsk {
        count: 2,
        wait_s: Some(300),
    };
    assert_eq!(switches("2@5").unwrap(), asked);
    assert!(switches("foo").is_err());
}

proptest! {
    #[test]
    fn nothing_panics(text in "[0-9a-zA-Z:,+@%?_\\-\\[\\]=* ./]{0,24}") {
        let _ = count(&text);
        let _ = nodes(&text);
        let _ = array(&text);
        let _ = dependency(&text);
        let _ = warn_signal(&text);
        let _ = gres(&text);
        let _ = gpus(&text);
        let _ = distribution_is_known(&text);
        let _ = switches(&text);
    }
}
