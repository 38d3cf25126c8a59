//! What filters see and set of options.

use super::*;

fn options(source: Source) -> FilterOptions {
    FilterOptions {
        chosen: ChosenOptions::new(OptionCommand::Sbatch),
        words: Vec::new(),
        source,
    }
}

#[test]
fn values_are_texts_as_slurm_has_them() {
    let mut options = options(Source::CommandLine);
    for name in ["ntasks", "time", "hold", "exclusive", "cpus-per-task"] {
        assert_eq!(options.get(name).as_deref(), Some("unset"), "{name}");
    }
    for name in ["partition", "mem", "no-such-option"] {
        assert_eq!(options.get(name), None, "{name}");
    }
    assert_eq!(options.get("label").as_deref(), Some("invalid-context"));
    for (name, given, shown) in [
        ("time", "90", "01:30:00"),
        ("time", "2-1", "2-01:00:00"),
        ("time", "infinite", "UNLIMITED"),
        ("mem", "4g", "4G"),
        ("mem", "500", "500M"),
        ("mem", "0", "0?"),
        ("hold", "yes", "set"),
        ("exclusive", "exclusive", "exclusive"),
        ("exclusive", "user", "user"),
        ("partition", "long", "long"),
        ("tasks-per-node", "3", "3"),
    ] {
        options.set(name, Some(given)).unwrap();
        assert_eq!(options.get(name).as_deref(), Some(shown), "{name}={given}");
    }
    assert_eq!(options.get("ntasks-per-node").as_deref(), Some("3"));
    let given: Vec<_> = options.given();
    assert!(given.contains(&("hold", "set".to_owned())), "{given:?}");
    options.set("hold", None).unwrap();
    assert!(!options.chosen.has("hold"));
}

#[test]
fn what_cannot_be_set_is_named() {
    let mut options = options(Source::CommandLine);
    for (name, value, error) in [
        ("label", "x", "sbatch has no option --label"),
        ("help", "x", "sbatch has no option --help"),
        ("partition", "", "--partition must have a value"),
    ] {
        assert_eq!(options.set(name, Some(value)), Err(error.to_owned()));
    }
}

#[test]
fn a_default_yields_to_everything_and_the_rest_to_nothing() {
    let mut of_site = options(Source::Default);
    of_site.set("partition", Some("short")).unwrap();
    let row = find(OptionCommand::Sbatch, "partition").unwrap();
    let mut chosen = of_site.chosen;
    chosen.give(row, Some("script".into()), Source::Directive);
    assert_eq!(chosen.value("partition"), Some("script"));
    chosen.give(row, Some("line".into()), Source::CommandLine);
    let mut before = FilterOptions {
        chosen,
        words: Vec::new(),
        source: Source::CommandLine,
    };
    before.set("partition", Some("last")).unwrap();
    assert_eq!(before.get("partition").as_deref(), Some("last"));
}
