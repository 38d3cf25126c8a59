//! Texts that users write: hostlists, and the values of options.

use muster_conf::options::values;
use muster_model::binding::{BindDefault, CpuBind, MemBind};
use muster_model::distribution::Distribution;
use muster_model::gpu_bind::GpuBind;
use muster_model::time::{TimeLimit, Timestamp};
use muster_model::{features, hostlist, licenses};

/// Names of one hostlist, for a target that is to be fast.
const NAMES_MAX: usize = 300;

/// Hostlists: expanding and compressing gives the same again.
pub(super) fn hostlists(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let _ = hostlist::split(&text);
    if let Ok(numbers) = hostlist::parse_ranges(&text, NAMES_MAX) {
        let again = hostlist::parse_ranges(&hostlist::ranges(&numbers), NAMES_MAX);
        assert_eq!(again.ok().as_ref(), Some(&numbers), "ranges of {text:?}");
    }
    let Ok(names) = hostlist::parse_limited(&text, NAMES_MAX) else {
        return;
    };
    for compressed in [
        hostlist::compress(&names),
        hostlist::compress_sorted(&names),
    ] {
        let mut again = hostlist::parse_limited(&compressed, NAMES_MAX).unwrap_or_default();
        let mut names = names.clone();
        again.sort();
        names.sort();
        assert_eq!(again, names, "{text:?} is {compressed:?}");
    }
}

pub(super) fn seeds_of_hostlists() -> Vec<Vec<u8>> {
    [
        "n1",
        "n[1-3,5],m",
        "n[01-10]",
        "a[1-2]b[3-4]",
        "n[1-",
        "",
        "x,,y",
        "rack[0-3]-n[000-010]",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

/// Values of options, each by its own parser.
pub(super) fn options(data: &[u8]) {
    let text = &*String::from_utf8_lossy(data);
    if let Some(alternatives) = features::alternatives(text) {
        let known = ["a".to_owned(), "b".to_owned()];
        for alternative in alternatives {
            alternative.each.holds(&known);
        }
    }
    let _ = licenses::parse(text);
    let _ = licenses::parse_ask(text);
    if let Ok(limit) = text.parse::<TimeLimit>() {
        limit.seconds();
    }
    if let Ok(distribution) = Distribution::parse(text) {
        let _ = (distribution.variable(), distribution.title());
        let _ = distribution.with_default(3, 2);
    }
    if let Ok(bind) = CpuBind::parse(text) {
        bind.variables();
    }
    if let Ok(bind) = MemBind::parse(text) {
        bind.variables();
    }
    let _ = (
        BindDefault::parse(text),
        GpuBind::parse(text),
        GpuBind::parse_tres(text),
    );
    let _ = (
        values::count(text),
        values::nodes(text),
        values::number("n", text, 1),
    );
    if let Some(array) = values::array(text) {
        assert!(!array.indices.is_empty());
        assert!(array.indices.first() <= array.indices.last());
    }
    let _ = (
        values::dependency(text),
        values::switches(text),
        values::signal(text),
    );
    let _ = values::warn_signal(text);
    let _ = (
        values::gres(text),
        values::gpus(text),
        values::mail_type_is_known(text),
    );
    let _ = values::distribution_is_known(text);
    for now in [0, 1_700_000_000_000, i64::MAX] {
        let _ = values::time::parse(text, Timestamp(now), &values::time::Utc);
    }
}

pub(super) fn seeds_of_options() -> Vec<Vec<u8>> {
    [
        "[a*2&b]|c",
        "a&(b|c)",
        "foo:2,bar@1",
        "1-02:03:04",
        "30",
        "UNLIMITED",
        "block:cyclic,Pack",
        "plane=4",
        "verbose,map_cpu:0,1,2",
        "mask_cpu:0xff,0x1",
        "local,map_mem:0",
        "single:2",
        "closest",
        "0-15:4%2",
        "[1,3,5-9]",
        "afterok:1:2_3+5,singleton",
        "after:1+10?afterany:2",
        "USR1@60",
        "B:10@30",
        "gpu:a100:2,shard:4",
        "2@10:00",
        "now+2hours",
        "tomorrow",
        "2030-01-02T03:04:05",
        "noon",
        "16:00 12/25",
        "uts1700000000",
        "2-4",
        "4k",
        "END,FAIL",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}
