//! Reading job_classes.conf.

use super::*;
use crate::grid_engine::Mapping;

const FILE_TEXT: &str = "\
# classes of the site
default_jc  NONE
enforce_jc  FALSE
userset     physics alice,@staff
jcname      template
p           {~}-5
l_hard      {+}UNSPECIFIED
jcname      base
user_lists  physics,bob
xuser_lists eve
l_hard      {~}h_rt=3600,gpu=1,{-}lic=1, \\
            [long={...}h_rt=604800]
q_hard      {+}long.q
variant_list default,long
jcname      derived
inherits    base
owner       eve
hold_jid    UNSPECIFIED
N           fixed
j           TRUE
";

fn parsed(text: &str) -> JobClasses {
    let (classes, findings) = JobClasses::parse(text, "job_classes.conf");
    assert_eq!(findings, []);
    classes
}

#[test]
fn classes_inherit_and_have_variants() {
    let classes = parsed(FILE_TEXT);
    let text = |name: &str| classes.template(name).unwrap().text();
    assert_eq!(
        text("base"),
        "l_hard {~}h_rt=3600,gpu=1,{-}lic=1\np {~}-5\nq_hard {+}long.q\n"
    );
    assert_eq!(
        text("base.long"),
        "l_hard {...}h_rt=604800\np {~}-5\nq_hard {+}long.q\n"
    );
    assert_eq!(
        text("derived"),
        "hold_jid UNSPECIFIED\nj y\nl_hard {~}h_rt=3600,gpu=1,{-}lic=1\nN fixed\np {~}-5\nq_hard {+}long.q\n"
    );
    let template = classes.template("base").unwrap();
    assert_eq!(Template::of_job("base", &template.text()), template);
    for (name, why) in [
        ("nosuch", "there is no job class \"nosuch\""),
        ("nosuch.long", "there is no job class \"nosuch.long\""),
        ("base.short", "job class \"base\" has no variant \"short\""),
        ("template", "no job can have the class \"template\""),
    ] {
        assert_eq!(classes.template(name), Err(why.to_owned()), "{name}");
    }
    let shown = classes.show("base").unwrap();
    assert!(
        shown.starts_with("jcname         base\nvariant_list   default,long\n"),
        "{shown}"
    );
    assert!(
        shown.contains("l_hard         {~}h_rt=3600,gpu=1,{-}lic=1,[long={...}h_rt=604800]\n"),
        "{shown}"
    );
    assert!(shown.contains("ckpt           {+}UNSPECIFIED\n"));
    // What is shown is what the file can have.
    let again = parsed(&format!("{shown}\n"));
    assert_eq!(again.template("base.long"), classes.template("base.long"));
}

#[test]
fn lists_say_who_may_use_a_class() {
    let classes = parsed(FILE_TEXT);
    let staff = ["staff".to_owned()];
    for (class, user, groups, want) in [
        ("base", "alice", &[][..], true),
        ("base", "carol", &staff[..], true),
        ("base", "carol", &[][..], false),
        ("base.long", "bob", &[][..], true),
        ("base", "eve", &staff[..], false),
        ("derived", "eve", &[][..], true),
        ("derived", "carol", &[][..], true),
        ("nosuch", "root", &[][..], false),
    ] {
        assert_eq!(classes.may_use(class, user, groups), want, "{class} {user}");
    }
}

#[test]
fn what_is_wrong_is_said_with_its_line_and_a_way_out() {
    let mapping = Mapping::parse("pe four 4\n", "sge.conf").0;
    for (text, line, part) in [
        ("l_hard h_rt=1", 1, "'l_hard' is outside of a class"),
        ("jcname 1a", 1, "'1a' is not a valid name"),
        ("jcname NONE", 1, "'NONE' is not a valid name"),
        ("jcname", 1, "jcname has no value"),
        ("jcname a\njcname a", 2, "class 'a' is defined twice"),
        ("jcname a\nlhard h_rt=1", 2, "there is no attribute 'lhard'"),
        ("jcname a\np 1\np 2", 3, "p is said twice in class 'a'"),
        ("jcname a\np {*}1", 2, "'{*}' is not a valid access"),
        ("jcname a\np {~1", 2, "has a { without }"),
        ("jcname a\np x", 2, "'x' is not a number"),
        ("jcname a\np 5000", 2, "not a number from -1023 to 1024"),
        ("jcname a\nh maybe", 2, "'maybe' is not one of y and n"),
        ("jcname a\np {...}1", 2, "p is not a list"),
        (
            "jcname a\nckpt x",
            2,
            "there are no checkpointing environments",
        ),
        (
            "jcname a\nhold_jid 7",
            2,
            "hold_jid cannot have a value in a class",
        ),
        (
            "jcname a\nl_hard =5",
            2,
            "'=5' is not of the form NAME=VALUE",
        ),
        (
            "jcname a\nl_hard h_rt=5,h_rt=6",
            2,
            "'h_rt' is in the list twice",
        ),
        (
            "jcname a\nl_hard h_rt=x",
            2,
            "attribute \"h_rt\" is not a time value",
        ),
        (
            "jcname a\nl_hard nosuch=1",
            2,
            "unknown resource \"nosuch\"",
        ),
        ("jcname a\nl_hard h=n1", 2, "h cannot stand in a class"),
        ("jcname a\nl_hard gpu=0", 2, "gpu asks for none"),
        (
            "jcname a\nl_hard h_rt=5,[long=h_rt=6]",
            2,
            "'long' is not a variant of class 'a'",
        ),
        ("jcname a\nl_hard [long=h_rt=6", 2, "has a [ without ]"),
        (
            "jcname a\nvariant_list a.b",
            2,
            "'a.b' is not a valid name of a variant",
        ),
        (
            "jcname a\ninherits b",
            1,
            "'b', which is inherited, is not a class",
        ),
        (
            "jcname a\ninherits b\njcname b\ninherits a",
            1,
            "inherits from itself",
        ),
        (
            "jcname a\npe_name nosuch",
            2,
            "no parallel environment 'nosuch'",
        ),
        ("jcname a\npe_range 4", 1, "pe_range without pe_name"),
        (
            "jcname a\npe_name four\npe_range 6",
            1,
            "not a whole number of hosts",
        ),
        (
            "jcname a\npe_name four\npe_range x",
            3,
            "'x' is not a valid range of slots",
        ),
        ("jcname a\nN UNSPECIFIED", 2, "cannot be forbidden"),
        ("jcname a\nv A", 2, "variable 'A' has no value"),
        ("jcname a\nt 0x", 2, "is not a valid list of tasks"),
        ("default_jc x\njcname a", 0, "default_jc names 'x'"),
        ("enforce_jc maybe", 1, "not one of TRUE and FALSE"),
        ("jcname a\nenforce_jc TRUE", 2, "is inside of a class"),
        ("userset x", 1, "userset 'x' is empty"),
    ] {
        let (classes, mut findings) = JobClasses::parse(text, "/etc/slurm/job_classes.conf");
        findings.extend(classes.check(&mapping, &[]));
        let first = findings
            .first()
            .unwrap_or_else(|| panic!("nothing is found in {text}"));
        assert!(first.message.contains(part), "{text}: {first}");
        assert_eq!(first.origin.line, line, "{text}: {first}");
        assert!(!first.help.is_empty(), "{text}: {first}");
    }
}

proptest::proptest! {
    #[test]
    fn never_panics(text in "(jcname a\n)?((l_hard|p|v|inherits|pe_range) [a-z{}~+.=\\[\\],0-9-]{0,20}\n){0,5}") {
        let (classes, _) = JobClasses::parse(&text, "f");
        let _ = classes.check(&Mapping::default(), &[]);
        let _ = classes.show("a");
        let _ = classes.template("a");
    }
}

#[test]
fn a_text_without_comments_has_the_same_classes() {
    let text = FILE_TEXT.replace(
        "jcname      base",
        "# the key is 1234\n\njcname      base\n  # more",
    );
    let bare = accepted_text(&text);
    assert!(!bare.contains('#') && !bare.contains("1234"), "{bare}");
    assert!(!bare.contains("\n\n"), "{bare}");
    let (classes, again) = (parsed(FILE_TEXT), parsed(&bare));
    for name in ["base", "base.long", "derived"] {
        assert_eq!(again.template(name), classes.template(name), "{name}");
        assert_eq!(again.show(name), classes.show(name), "{name}");
    }
    assert_eq!(
        (again.default, again.enforce),
        (classes.default, classes.enforce)
    );
    assert_eq!(again.sets, classes.sets);
    let ends = "jcname a\nN x\\\\\n\nj TRUE\n";
    let parse = |text: &str| JobClasses::parse(text, "f").0;
    let bare = parse(&accepted_text(ends));
    assert_eq!(bare.show("a"), parse(ends).show("a"));
    assert_eq!(accepted_text("# all\n\n"), "");
}

#[test]
fn wrong_lines_are_not_sent() {
    let text = "enforce_jc maybe 1\nuserset staff ann # secret 2\nuserset more \\\n# secret 3\njcname a\nN x\nN secret4\n\
                secret5 of the author\nowner ann # secret 6\nh_rt secret7\njcname a\njcname 9secret8\nj TRUE\n";
    let (classes, findings) = JobClasses::parse(text, "f");
    assert_eq!(findings.len(), 9, "{findings:?}");
    let sent = accepted_text(text);
    assert_eq!(sent, "jcname a\nN x\nj TRUE\n");
    let (again, findings) = JobClasses::parse(&sent, "f");
    assert!(findings.is_empty(), "{findings:?}");
    assert_eq!(again.show("a"), classes.show("a"));
}
