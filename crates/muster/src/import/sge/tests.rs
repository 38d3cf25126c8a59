//! A small site of Grid Engine.

use super::*;

const CLASS: &str = "\
jcname          gpujob
variant_list    default,long
user_lists      staff
A               {+}UNSPECIFIED
ckpt            test
l_hard          {~}h_rt=3600,gpu=1,docker=1, \\
                [long={~}h_rt=86400,docker=1],lic=1
pe_name         smp
pe_range        {~}4
xd              {+}UNSPECIFIED
";

/// Files as `qconf` prints objects.
fn site() -> Dump {
    let complexes = "#name shortcut type relop requestable consumable default urgency\n#---\n\
        gpu gpu RSMAP <= YES YES 0 0\nbig big BOOL == YES NO 0 0\nlic lic INT <= YES JOB 0 0\n\
        dock dock RESTRING == YES NO NONE 0\nload_avg la DOUBLE >= NO NO 0 0\nh_vmem h_vmem MEMORY <= YES YES 0 0\n";
    let host = |name: &str, values: &str| {
        format!(
            "hostname {name}\nload_scaling NONE\ncomplex_values {values}\nload_values arch=lx-amd64,num_proc=8, \\\n   \
             mem_total=16.0G,m_socket=2,m_core=4,m_thread=8\nprocessors 8\nprojects NONE\n"
        )
    };
    let queue = |name: &str, hosts: &str, more: &str| {
        format!("qname {name}\nhostlist {hosts}\nslots 8\ncalendar NONE\nprojects NONE\n{more}")
    };
    let mut dump = Dump::default();
    for (file, text) in [
        ("centry", complexes.to_owned()),
        ("execution/n1", host("n1", "gpu=2(0 1),big=TRUE,h_vmem=12G,dock=a")),
        ("execution/n2", host("n2", "gpu=2(0:SCC 1:ScC)")),
        ("execution/global", "hostname global\ncomplex_values lic=10\n".to_owned()),
        ("cqueues/all.q", queue("all.q", "@all", "h_rt INFINITY\ntmpdir /scratch\n")),
        ("cqueues/long.q", queue("long.q", "n2 nosuch", "h_rt 24:00:00,[n2=1:0:0]\nuser_lists wheel\ntmpdir /tmp\n").replace("projects NONE", "projects P1")),
        ("hostgroups/@all", "group_name @all\nhostlist n1 \\\n   @rest\n".to_owned()),
        ("hostgroups/@rest", "group_name @rest\nhostlist n2 @all\n".to_owned()),
        ("pe/smp", "pe_name smp\nallocation_rule $pe_slots\nstart_proc_args /bin/true\n".to_owned()),
        ("pe/mpi", "pe_name mpi\nallocation_rule 4\n".to_owned()),
        ("usersets/staff", "name staff\ntype ACL\nentries alice,@wheel\n".to_owned()),
        ("usersets/wheel", "name wheel\ntype ACL\nentries @wheel\n".to_owned()),
        ("projects/P1", "name P1\noticket 0\nfshare 7\nacl staff\nxacl NONE\n".to_owned()),
        ("users/bob", "name bob\noticket 0\nfshare 0\ndefault_project P1\n".to_owned()),
        ("configurations/global", "#global:\nexecd_spool_dir /x\nmax_aj_tasks 100\njsv_url script:/x/jsv.sh\nprolog none\n".to_owned()),
        ("quotas", "{\n name max\n enabled TRUE\n limit users {*} to slots=10\n}\n{\n name off\n enabled FALSE\n limit x\n}\n".to_owned()),
        ("admin_hosts", "head\n".to_owned()),
        ("managers", "root\n".to_owned()),
        ("classes", CLASS.to_owned()),
        ("other", "something else\n".to_owned()),
    ] {
        dump.take(file, &text);
    }
    dump
}

#[test]
fn a_site_becomes_a_configuration() {
    let made = convert(&site(), None).unwrap();
    let has = |text: &str, lines: &[&str]| {
        for line in lines {
            assert!(text.lines().any(|own| own == *line), "{line}\n---\n{text}");
        }
    };
    let node = "CPUs=8 Sockets=2 CoresPerSocket=2 ThreadsPerCore=2 RealMemory=16384 Gres=gpu:2";
    has(
        &made.slurm,
        &[
            "SlurmctldHost=head",
            "TmpFS=/scratch",
            "GresTypes=gpu",
            "Licenses=lic:10",
            "MaxArraySize=101",
            "SelectTypeParameters=CR_Core_Memory",
            "DefMemPerCPU=1536",
            &format!("NodeName=n1 {} Feature=big", node.replace("16384", "12288")),
            &format!("NodeName=n2 {node}"),
            "PartitionName=all Nodes=n[1-2] Default=YES MaxTime=INFINITE MaxCPUsPerNode=8",
            "PartitionName=long Nodes=n2 MaxTime=1440 AllowGroups=wheel AllowAccounts=p1 MaxCPUsPerNode=8",
        ],
    );
    has(
        &made.gres,
        &[
            "NodeName=n1 Name=gpu ResourceMap=\"gpu=2(0 1)\"",
            "NodeName=n2 Name=gpu Count=2",
        ],
    );
    has(
        &made.sge,
        &[
            "jsv_url script:/x/jsv.sh",
            "queue all.q all",
            "pe mpi 4",
            "complex gpu gres:gpu slot",
            "complex lic license:lic",
            "complex big feature:big",
            "project P1 p1",
        ],
    );
    has(
        &made.accounts,
        &[
            "Account - 'p1':Description='project P1':Organization='p1':Fairshare=7",
            "Parent - 'p1'",
            "User - 'alice':DefaultAccount='p1'",
            "User - 'bob':DefaultAccount='p1'",
        ],
    );
    has(
        &made.classes,
        &[
            "userset staff alice,@wheel",
            "jcname gpujob",
            "l_hard {~}h_rt=3600,gpu=1,[long={~}h_rt=86400],lic=1",
            "pe_range {~}4",
        ],
    );
}

#[test]
fn what_is_not_carried_over_is_listed() {
    let made = convert(&site(), Some("ctl")).unwrap();
    assert!(made.slurm.contains("SlurmctldHost=ctl\n"));
    let notes = made.notes.join("\n");
    for part in [
        "file other: ",
        "managers (root): administrators are users",
        "complex dock (RESTRING): values of this kind",
        "host n2: gpu=2(0:SCC 1:ScC): masks and characteristics",
        "queue long.q: nosuch: nothing is known of this host",
        "queue long.q: h_rt 24:00:00,[n2=1:0:0]: values for single hosts",
        "queue long.q: tmpdir /tmp: jobs of all partitions have their temporary directories in TmpFS of slurm.conf, which is /scratch",
        "project P1: @wheel of staff: accounts have users",
        "resource quota set max: limit users {*} to slots=10: limits are those of",
        "job classes: ckpt test: ckpt cannot have a value",
        "job classes: docker of l_hard",
    ] {
        assert!(notes.contains(part), "{part}\n---\n{notes}");
    }
    for part in [
        "quota set off",
        "file centry",
        "complex load_avg",
        "queue all.q: tmpdir",
        "complex h_vmem (",
        "xd {+}",
    ] {
        assert!(!notes.contains(part), "{part}\n---\n{notes}");
    }
}

/// A job that asks for no memory does not take a node's.
#[test]
fn memory_is_given_out_where_the_site_counts_it() {
    let with = |complex: &str| {
        let mut dump = site();
        dump.complexes.clear();
        let columns = "#name shortcut type relop requestable consumable default urgency\n";
        dump.take("centry", &format!("{columns}{complex}"));
        convert(&dump, None).unwrap().slurm
    };
    let usual = with("h_vmem h_vmem MEMORY <= YES YES 1.5G 0\n");
    assert!(usual.contains("\nSelectTypeParameters=CR_Core_Memory\nDefMemPerCPU=1536\n"));
    let uncounted = with("h_vmem h_vmem MEMORY <= YES NO 0 0\n");
    assert!(uncounted.contains("\nSelectTypeParameters=CR_Core\n"));
    assert!(!uncounted.contains("DefMemPerCPU"));
}

#[test]
fn what_is_no_output_of_qconf_does_no_harm() {
    let mut dump = Dump::default();
    for text in [
        "",
        "\\",
        "{",
        "{\nname",
        "#name",
        "qname",
        "hostname\n\\\n\\",
        "jcname x\nl_hard [",
        "qname a\nhostlist @a\nslots [",
        "group_name @a\nhostlist @a",
        "\u{0}\u{1}",
    ] {
        dump.take("x", text);
    }
    dump.hosts.clear();
    dump.take(
        "x",
        "hostname h\ncomplex_values gpu=(,=,x\nload_values num_proc=99999999999,mem_total=x",
    );
    let made = convert(&dump, None).unwrap();
    assert!(made.slurm.contains("NodeName=h\n"));
}

/// They became settings: an AdminLevel in accounts.dump, a Prolog in slurm.conf.
#[test]
fn names_that_grid_engine_does_not_have_are_refused() {
    for text in [
        "name staff2\ntype ACL\nentries eve':AdminLevel='Administrator\n",
        "hostname n3 Prolog=/tmp/x\n",
        "qname a#b\n",
        "name eve\ndefault_project x':AdminLevel='Administrator\n",
        "name P2':x\nfshare 1\n",
    ] {
        let mut dump = site();
        dump.take("x", text);
        let Err(refused) = convert(&dump, None) else {
            panic!("{text}");
        };
        assert!(refused.to_string().contains("no name of Grid"), "{refused}");
    }
    let mut dump = site();
    dump.take("x", "name P2\nfshare 1:AdminLevel=Administrator\n");
    dump.take("x", "execd_spool_dir /x\nmailer /bin/mail Prolog=/tmp/x\n");
    let made = convert(&dump, None).unwrap();
    assert!(!made.accounts.contains("AdminLevel"));
    assert!(!made.slurm.contains("Prolog"), "{}", made.slurm);
    let notes = made.notes.join("\n");
    assert!(notes.contains("P2: fshare") && notes.contains("mailer /bin/mail Prolog"));
}

/// slurm.conf ends words at all of these.
#[test]
fn a_mailer_is_one_whole_path() {
    let made = |mailer: &str| {
        let mut dump = site();
        dump.take("x", &format!("execd_spool_dir /x\nmailer {mailer}\n"));
        convert(&dump, None).unwrap()
    };
    let blanks = "\u{a0}\u{b}\u{c}\r\0\t \u{85}\u{2028}\u{3000}";
    for blank in blanks.chars() {
        let made = made(&format!("/bin/mail{blank}Prolog=/tmp/x"));
        assert!(!made.slurm.contains("Prolog"), "{blank:?}: {}", made.slurm);
        assert!(!made.slurm.contains("MailProg"), "{}", made.slurm);
        assert!(made.notes.join("\n").contains("MailProg"), "{blank:?}");
    }
    assert!(!made("mail").slurm.contains("MailProg"));
    assert!(made("/bin/mail").slurm.contains("MailProg=/bin/mail\n"));
}

/// Each was gone through as often as it was named: these would have taken days.
#[test]
fn groups_in_groups_are_gone_through_once() {
    let mut dump = site();
    for depth in 0..20 {
        let inside = format!(" @g{}", depth + 1).repeat(100);
        dump.take("x", &format!("group_name @g{depth}\nhostlist{inside}\n"));
    }
    dump.take("x", "group_name @g20\nhostlist n2 @g0 n1\n");
    assert_eq!(
        dump.hosts_of(&["@g0".to_owned()], &dump.known_hosts()),
        ["n2", "n1"]
    );
}

/// The hosts were put together for each word, which took minutes.
#[test]
fn words_of_a_list_of_hosts_cost_little_each() {
    let mut dump = site();
    for n in 0..10_000 {
        dump.take("x", &format!("hostname many{n}\n"));
        dump.take("x", &format!("group_name @g{n}\nhostlist @g0 many{n}\n"));
    }
    let groups: String = (0..10_000).map(|n| format!(" @g{n} @gone")).collect();
    dump.take("x", &format!("qname many.q\nhostlist{groups}\n"));
    dump.take("x", "group_name @empty\nhostlist @empty nowhere\n");
    dump.take("x", "qname other.q\nhostlist @empty n1\n");
    let made = convert(&dump, None).unwrap();
    assert!(made.slurm.contains("PartitionName=many Nodes=many[0-9999]"));
    assert!(made.slurm.contains("PartitionName=other Nodes=n1"));
    // That of the site is there besides.
    let lost = |note: &&String| note.contains("nothing is known of") && note.contains(".q: @");
    let lost: Vec<_> = made.notes.iter().filter(lost).collect();
    assert_eq!(lost.len(), 2, "{lost:?}");
    assert!(lost[0].contains("@gone") && lost[1].contains("@empty"));
}

/// The whole text was read again for each of them, which took minutes.
#[test]
fn wrong_lines_of_job_classes_go_together() {
    let mut dump = site();
    let lines = "pe_range 4\nl_hard h_rt=60,nothing=1\n".repeat(10_000);
    dump.take("x", &format!("jcname bad\n{lines}"));
    dump.take("x", "jcname heir\ninherits bad\nh_rt x\nN heir\n");
    dump.take("x", "jcname 9bad\nN lost\n");
    let made = convert(&dump, None).unwrap();
    let text = &made.classes;
    assert!(
        text.contains("jcname bad\nl_hard h_rt=60\n"),
        "{text:.2000}"
    );
    assert!(text.contains("inherits bad\nN heir\n"), "{text:.2000}");
    assert!(
        !text.contains("lost") && !text.contains("9bad"),
        "{text:.2000}"
    );
    assert_eq!(
        text.matches("pe_range").count(),
        1,
        "of gpujob: {text:.2000}"
    );
    let notes = made.notes.join("\n");
    assert!(notes.contains("jcname 9bad") && notes.contains("pe_range 4: "));
}

#[test]
fn a_dump_without_its_group_has_all_hosts() {
    let mut dump = Dump::default();
    dump.take("h", "hostname n1\ncomplex_values NONE\nprocessors 2\n");
    dump.take("q", "qname all.q\nhostlist @allhosts\nslots 2\n");
    dump.complete();
    let list = ["@allhosts".to_owned()];
    assert_eq!(dump.hosts_of(&list, &dump.known_hosts()), ["n1"]);
}
