//! sprio: what the priorities of pending jobs are made of.

use crate::SLURM_VERSION;
use crate::clusters::ClusterSelection;
use crate::connect::Client;
use crate::listing::context::{Ctx, uid_of};
use crate::listing::document::{Dialect, Writer, print_document, versions};
use crate::listing::{Failure, complain, failed_call, print, query};
use crate::options::{Arg, HelpForm, Parsed, Spec, also, flag, opt};
use muster_model::order_config::Multifactor;
use muster_proto::client::{JobPriority, PrioritiesAnswer};

const ALONE: &str = "this cluster is not in a federation";

/// sprio.
pub(crate) static SPRIO: Spec = Spec {
    name: "sprio",
    about: "Shows what the priorities of pending jobs are made of.",
    operands: "",
    form: HelpForm::Options,
    options: &[
        opt("clusters", "NAME", "cluster to ask").short('M'),
        flag("federation", "jobs of a federation").stored(ALONE),
        flag("help", "show this help message"),
        flag("noheader", "no line above the columns").short('h'),
        opt("jobs", "LIST", "these jobs").short('j').optional(),
        opt("json", "VERSION", "as JSON; --json=list names the versions").optional(),
        flag("local", "jobs of this cluster").stored(ALONE),
        flag("long", "more columns").short('l'),
        flag("norm", "factors from 0 to 1").short('n'),
        opt("format", "FORMAT", "columns").short('o'),
        opt("partition", "LIST", "jobs in these partitions").short('p'),
        flag("sibling", "jobs of a federation's other clusters").stored(ALONE),
        opt("sort", "KEYS", "order").short('S'),
        flag("usage", "display a brief summary of sprio options"),
        opt("user", "LIST", "jobs of these users").short('u'),
        also("user", "users", Arg::Required),
        flag("verbose", "say what is asked").short('v'),
        flag("version", "print the version").short('V'),
        flag("weights", "weights of the factors").short('w'),
        opt("yaml", "VERSION", "as YAML; as for JSON").optional(),
    ],
    variables: &[("SPRIO_FORMAT", "format")],
    notes: "",
};

/// Output of `--usage`, in the layout that scripts expect of sprio.
const USAGE: &str = "Usage: sprio [-j jid[s]] [-u user_name[s]] [-o format] [-p partitions]\n   [--federation] [--local] [--sibling] [--usage] [-hlnvVw]\n";

const LONG: &str = "%.15i %9r %.8u %.10Y %.10S %.10A %.10B %.10F %.10J %.10P %.10Q %.11N %.20T";
const LONG_NORM: &str = "%.15i %9r %.8u %10y %10a %10b %10f %10j %10p %10q %20t";
const NOT_RUNNING: &str = "You are not running a supported priority plugin\n(priority/basic).\nOnly 'priority/multifactor' is supported.";

#[derive(Debug, Default)]
struct Options {
    format: Option<String>,
    long: bool,
    no_header: bool,
    norm: bool,
    weights: bool,
    /// `--user` was given, even if it names nobody.
    of_users: bool,
    jobs: Vec<u64>,
    uids: Vec<u32>,
    partitions: Vec<String>,
    sort: String,
    /// `--json`, `--yaml`.
    document: Option<Dialect>,
}

/// Runs sprio.
pub(crate) fn run(args: &[String]) -> Result<(), Failure> {
    let parsed = SPRIO.parse(args).map_err(Failure::new)?;
    if let Some(text) = versions(&parsed) {
        return print_text(&text);
    }
    let mut options = Options {
        format: std::env::var("SPRIO_FORMAT").ok(),
        ..Options::default()
    };
    let mut operands = parsed.operands.clone();
    for (name, value) in &parsed.options {
        let mut value = value.clone().unwrap_or_default();
        // `-j 7`, though the value is optional.
        if *name == "jobs" && value.is_empty() && !operands.is_empty() {
            value = operands.remove(0);
        }
        let list = || {
            value
                .split(',')
                .filter(|w| !w.is_empty())
                .map(str::to_owned)
        };
        match *name {
            "version" => {
                print(&format!("slurm {SLURM_VERSION}\n"));
                return Ok(());
            }
            "help" => return print_text(&SPRIO.help()),
            "usage" => return print_text(USAGE),
            "clusters" => ClusterSelection::choose_one("sprio", &value)?,
            "format" => options.format = Some(value.clone()),
            "json" | "yaml" => {
                options.document = Some(Dialect::parse("sprio", *name == "yaml", &value)?);
            }
            "long" => options.long = true,
            "noheader" => options.no_header = true,
            "norm" => options.norm = true,
            "weights" => options.weights = true,
            "sort" => options.sort = value.clone(),
            "partition" => options.partitions = list().collect(),
            "jobs" => {
                for word in list() {
                    let id = word.split('_').next().and_then(|w| w.parse().ok());
                    let id = id.ok_or_else(|| {
                        Failure::new(format!("sprio: error: Invalid job id: {word}"))
                    })?;
                    options.jobs.push(id);
                }
            }
            "user" => {
                options.of_users = true;
                for word in list() {
                    match uid_of(&word) {
                        Some(uid) => options.uids.push(uid),
                        None => complain(&format!("sprio: error: Invalid user: {word}\n")),
                    }
                }
            }
            _ => {}
        }
    }
    if let Some(operand) = operands.first() {
        return Err(Failure::new(format!(
            "sprio: error: Unrecognized option: {operand}\n{}",
            USAGE.trim_end()
        )));
    }
    let verbose = parsed.options.iter().filter(|(name, _)| *name == "verbose");
    match verbose.count() {
        0 => {}
        count => print(&values(&options, &parsed, count)),
    }
    let failed = failed_call("slurm_load_job_prio");
    let mut client = Client::connect().map_err(&failed)?;
    let answer = query::priorities(&mut client).map_err(&failed)?;
    match options.document {
        Some(dialect) => {
            let ctx = Ctx::new(&client.endpoint.cluster);
            let (jobs, weights) = chosen(&options, &answer)?;
            print_document(dialect, "sprio", &ctx, |w| write_jobs(w, &jobs, weights));
        }
        None => print(&render(&options, &answer)?),
    }
    Ok(())
}

fn print_text(text: &str) -> Result<(), Failure> {
    print(text);
    Ok(())
}

/// Output of `--verbose` before all else.
fn values(options: &Options, parsed: &Parsed, verbose: usize) -> String {
    const LINE: &str = "-----------------------------\n";
    let given = |option: &str| {
        let mut given = parsed
            .options
            .iter()
            .rev()
            .filter(|(name, _)| *name == option);
        let value = given.next().and_then(|(_, value)| value.clone());
        value.unwrap_or_else(|| "(null)".to_owned())
    };
    let jobs: Vec<String> = options.jobs.iter().map(u64::to_string).collect();
    let jobs = match jobs.is_empty() {
        true => "(null)".to_owned(),
        false => jobs.join(","),
    };
    let job_flag = u8::from(parsed.options.iter().any(|(name, _)| *name == "jobs"));
    format!(
        "{LINE}format     = {}\njob_flag   = {job_flag}\njobs       = {jobs}\npartition  = {}\nusers      = {}\nverbose    = {verbose}\n{LINE}\n\n",
        given("format"),
        given("partition"),
        given("user"),
    )
}

/// The jobs that are shown, in order, and the weights of their factors.
fn chosen<'a>(
    options: &Options,
    answer: &'a PrioritiesAnswer,
) -> Result<(Vec<&'a JobPriority>, &'a Multifactor), Failure> {
    let weights = answer.settings.as_ref();
    let weights = weights.ok_or_else(|| Failure::new(NOT_RUNNING))?;
    check_order(&options.sort)?;
    let fits = |p: &&JobPriority| {
        let array = p.array.map(|task| task.array.0);
        (options.jobs.is_empty()
            || options.jobs.contains(&p.job.0)
            || array.is_some_and(|a| options.jobs.contains(&a)))
            && (!options.of_users || options.uids.contains(&p.uid))
            && (options.partitions.is_empty() || options.partitions.contains(&p.partition))
    };
    let mut jobs: Vec<&JobPriority> = answer.jobs.iter().filter(fits).collect();
    sort(&mut jobs, &options.sort, weights);
    Ok((jobs, weights))
}

/// The document: the priority of each job, its weighted factors as columns show them, and the weights.
fn write_jobs(w: &mut Writer<'_>, jobs: &[&JobPriority], weights: &Multifactor) {
    const FACTORS: [(&str, char); 7] = [
        ("age", 'A'),
        ("association", 'B'),
        ("fair_share", 'F'),
        ("job_size", 'J'),
        ("partition", 'P'),
        ("qos", 'Q'),
        ("site", 'S'),
    ];
    let list = |w: &mut Writer<'_>, list: &[(String, f64)]| {
        w.list("tres", |w| {
            for (name, value) in list {
                w.item(|w| {
                    w.text("type", name);
                    w.raw("value", value);
                });
            }
        });
    };
    w.map("weights", |w| {
        for (name, letter) in FACTORS.into_iter().filter(|(_, letter)| *letter != 'S') {
            w.raw(name, weight(letter, weights));
        }
        list(w, &weights.weight_tres);
    });
    w.list("jobs", |w| {
        for job in jobs {
            w.item(|w| {
                w.raw("job_id", job.job.0);
                w.raw("array_job_id", job.array.map_or(0, |task| task.array.0));
                match job.array {
                    Some(task) => w.raw("array_task_id", task.index),
                    None => w.raw("array_task_id", "null"),
                }
                w.text("partition", &job.partition);
                w.raw("user_id", job.uid);
                w.text("user_name", &job.user);
                w.raw("priority", job.priority);
                w.raw("nice", job.factors.nice);
                w.map("factors", |w| {
                    for (name, letter) in FACTORS {
                        let (value, of) = factor(letter, job, weights);
                        w.map(name, |w| {
                            w.raw("weighted", value);
                            w.raw("normalized", if of > 0.0 { value / of } else { 0.0 });
                        });
                    }
                    list(w, &job.factors.tres);
                });
            });
        }
    });
}

fn render(options: &Options, answer: &PrioritiesAnswer) -> Result<String, Failure> {
    let (jobs, weights) = chosen(options, answer)?;
    let format = match (&options.format, options.long) {
        (Some(format), _) => format.clone(),
        (None, true) if options.norm => LONG_NORM.to_owned(),
        (None, true) => LONG.to_owned(),
        (None, false) => default_format(weights, options),
    };
    let columns = columns(&format);
    let mut out = String::new();
    if !options.no_header {
        line(&mut out, &columns, |letter| header(letter).to_owned());
    }
    if options.weights {
        line(&mut out, &columns, |letter| weight(letter, weights));
        return Ok(out);
    }
    if jobs.is_empty() && !options.jobs.is_empty() {
        return Ok("Unable to find jobs matching user/id(s) specified\n".to_owned());
    }
    for job in jobs {
        line(&mut out, &columns, |letter| cell(letter, job, weights));
    }
    Ok(out)
}

/// Site, then what has a weight.
fn default_format(w: &Multifactor, options: &Options) -> String {
    let norm = options.norm;
    let user = if options.of_users { " %.8u" } else { "" };
    let mut format = match norm {
        true => format!("%.15i %9r{user} %10y"),
        false => format!("%.15i %9r{user} %.10Y %.10S"),
    };
    let factors = [
        (w.weight_age, 'A'),
        (w.weight_assoc, 'B'),
        (w.weight_fair_share, 'F'),
        (w.weight_job_size, 'J'),
        (w.weight_partition, 'P'),
        (w.weight_qos, 'Q'),
    ];
    for (_, letter) in factors.iter().filter(|(weight, _)| *weight > 0) {
        let letter = if norm {
            letter.to_ascii_lowercase()
        } else {
            *letter
        };
        let right = if norm { "" } else { "." };
        format.push_str(&format!(" %{right}10{letter}"));
    }
    if !w.weight_tres.is_empty() {
        format.push_str(if norm { " %20t" } else { " %20T" });
    }
    format
}

/// A column and the text behind it.
struct FactorColumn {
    letter: char,
    width: usize,
    right: bool,
    after: String,
}

fn columns(format: &str) -> Vec<FactorColumn> {
    let mut out: Vec<FactorColumn> = Vec::new();
    let mut rest = format.trim_matches('"').chars().peekable();
    while let Some(c) = rest.next() {
        if c != '%' {
            if let Some(last) = out.last_mut() {
                last.after.push(c);
            }
            continue;
        }
        let right = rest.next_if_eq(&'.').is_some();
        let mut width = 0;
        while let Some(digit) = rest.peek().and_then(|c| c.to_digit(10)) {
            width = width * 10 + digit as usize;
            rest.next();
        }
        if let Some(letter) = rest.next() {
            let after = String::new();
            if header(letter).is_empty() {
                complain(&format!(
                    "sprio: error: Invalid job format specification: {letter}"
                ));
                continue;
            }
            out.push(FactorColumn {
                letter,
                width,
                right,
                after,
            });
        }
    }
    out
}

fn line(out: &mut String, columns: &[FactorColumn], cell: impl Fn(char) -> String) {
    for column in columns {
        let text = cell(column.letter);
        let width = column.width;
        let text: String = match width {
            0 => text,
            _ => text.chars().take(width).collect(),
        };
        if column.right {
            out.push_str(&format!("{text:>width$}"));
        } else {
            out.push_str(&format!("{text:<width$}"));
        }
        out.push_str(&column.after);
    }
    out.push('\n');
}

fn header(letter: char) -> &'static str {
    match letter {
        'a' | 'A' => "AGE",
        'b' | 'B' => "ASSOC",
        'c' => "CLUSTER",
        'f' | 'F' => "FAIRSHARE",
        'i' => "JOBID",
        'j' | 'J' => "JOBSIZE",
        'N' => "NICE",
        'p' | 'P' => "PARTITION",
        'q' | 'Q' => "QOS",
        'r' => "PARTITION",
        'S' => "SITE",
        't' | 'T' => "TRES",
        'u' => "USER",
        'y' | 'Y' => "PRIORITY",
        _ => "",
    }
}

fn weight(letter: char, w: &Multifactor) -> String {
    match letter.to_ascii_uppercase() {
        'A' => w.weight_age.to_string(),
        'B' => w.weight_assoc.to_string(),
        'F' => w.weight_fair_share.to_string(),
        'J' => w.weight_job_size.to_string(),
        'P' => w.weight_partition.to_string(),
        'Q' => w.weight_qos.to_string(),
        'S' => "1".to_owned(),
        'T' => joined(&w.weight_tres, |v| format!("{v:.0}")),
        'I' => "Weights".to_owned(),
        _ => String::new(),
    }
}

fn joined(list: &[(String, f64)], show: impl Fn(f64) -> String) -> String {
    let words: Vec<String> = list
        .iter()
        .filter(|(_, v)| *v != 0.0)
        .map(|(name, v)| format!("{name}={}", show(*v)))
        .collect();
    words.join(",")
}

/// A weighted factor and its weight.
fn factor(letter: char, job: &JobPriority, w: &Multifactor) -> (f64, f64) {
    let f = &job.factors;
    match letter.to_ascii_uppercase() {
        'A' => (f.age, f64::from(w.weight_age)),
        'B' => (f.assoc, f64::from(w.weight_assoc)),
        'F' => (f.fair_share, f64::from(w.weight_fair_share)),
        'J' => (f.job_size, f64::from(w.weight_job_size)),
        'P' => (f.partition, f64::from(w.weight_partition)),
        'Q' => (f.qos, f64::from(w.weight_qos)),
        'S' => (f.site, 1.0),
        'N' => (f64::from(f.nice), 1.0),
        'Y' => (f64::from(job.priority), f64::from(u32::MAX)),
        _ => (0.0, 0.0),
    }
}

fn cell(letter: char, job: &JobPriority, w: &Multifactor) -> String {
    let (value, weight) = factor(letter, job, w);
    match letter {
        'i' => match job.array {
            Some(task) => task.to_string(),
            None => job.job.to_string(),
        },
        'r' => job.partition.clone(),
        'u' => job.user.clone(),
        'c' => String::new(),
        'T' => joined(&job.factors.tres, |v| format!("{v:.0}")),
        't' => {
            let norm = |(name, v): &(String, f64)| {
                let of = w.weight_tres.iter().find(|(n, _)| n == name);
                let weight = of.map_or(0.0, |(_, w)| *w);
                (name.clone(), if weight > 0.0 { v / weight } else { 0.0 })
            };
            let list: Vec<(String, f64)> = job.factors.tres.iter().map(norm).collect();
            joined(&list, |v| format!("{v:.2}"))
        }
        'y' => format!("{:.14}", value / weight),
        'Y' => job.priority.to_string(),
        'a' | 'b' | 'f' | 'j' | 'p' | 'q' => {
            let part = if weight > 0.0 { value / weight } else { 0.0 };
            format!("{part:.7}")
        }
        _ => format!("{value:.0}"),
    }
}

/// Refuses letters that are no columns.
fn check_order(keys: &str) -> Result<(), Failure> {
    let is_known = |c: char| "+-, nos".contains(c) || !header(c).is_empty();
    match keys.chars().find(|c| !is_known(*c)) {
        Some(unknown) => Err(Failure::new(format!(
            "sprio: error: Invalid sort specification: {unknown}"
        ))),
        None => Ok(()),
    }
}

/// By the keys in turn, then by job.
fn sort(jobs: &mut [&JobPriority], keys: &str, w: &Multifactor) {
    jobs.sort_by_key(|j| j.job);
    let words: Vec<&str> = keys.split(',').filter(|k| !k.is_empty()).collect();
    for word in words.into_iter().rev() {
        let (word, down) = match word.strip_prefix('-') {
            Some(word) => (word, true),
            None => (word.strip_prefix('+').unwrap_or(word), false),
        };
        let Some(letter) = word.chars().next() else {
            continue;
        };
        jobs.sort_by(|a, b| {
            let order = match letter {
                'i' => a.job.cmp(&b.job),
                'u' => a.user.cmp(&b.user),
                'r' => a.partition.cmp(&b.partition),
                letter => factor(letter, a, w).0.total_cmp(&factor(letter, b, w).0),
            };
            if down { order.reverse() } else { order }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::factors::Factors;
    use muster_model::ids::JobId;

    fn answer() -> PrioritiesAnswer {
        let job = |id, partition: &str| JobPriority {
            job: JobId(id),
            partition: partition.into(),
            user: "root".into(),
            priority: 11_000,
            factors: Factors {
                fair_share: 10_000.0,
                partition: 1000.0,
                ..Factors::default()
            },
            ..JobPriority::default()
        };
        PrioritiesAnswer {
            settings: Some(Multifactor {
                weight_age: 1000,
                weight_fair_share: 10_000,
                weight_partition: 1000,
                weight_qos: 1000,
                ..Multifactor::default()
            }),
            jobs: vec![job(14, "short"), job(15, "batch")],
            more: false,
        }
    }

    /// As Slurm 22.05.8 printed it.
    #[test]
    fn captured() {
        let expected = "          JOBID PARTITION   PRIORITY       SITE        AGE  FAIRSHARE  PARTITION        QOS\n\
                        \u{20}            14 short          11000          0          0      10000       1000          0\n\
                        \u{20}            15 batch          11000          0          0      10000       1000          0\n";
        assert_eq!(render(&Options::default(), &answer()).unwrap(), expected);
        let long = Options {
            long: true,
            ..Options::default()
        };
        let text = render(&long, &answer()).unwrap();
        let first = text.lines().next().unwrap_or_default();
        assert_eq!(
            first,
            "          JOBID PARTITION     USER   PRIORITY       SITE        AGE      ASSOC  FAIRSHARE    JOBSIZE  PARTITION        QOS        NICE                 TRES"
        );
        let weights = Options {
            weights: true,
            no_header: true,
            ..Options::default()
        };
        assert_eq!(
            render(&weights, &answer()).unwrap(),
            "        Weights                               1       1000      10000       1000       1000\n"
        );
    }

    /// As Slurm 22.05.8 printed them: norms stand left, `--user` has a column more, and an order is read letter by letter.
    #[test]
    fn norms_users_and_wrong_orders() {
        let norm = Options {
            norm: true,
            ..Options::default()
        };
        let text = render(&norm, &answer()).unwrap();
        let expected = "          JOBID PARTITION PRIORITY   AGE        FAIRSHARE  PARTITION  QOS       \n\
                      \u{20}            14 short     0.00000256 0.0000000  1.0000000  1.0000000  0.0000000 \n";
        assert!(text.starts_with(expected), "{text}");
        let nobody = Options {
            of_users: true,
            ..Options::default()
        };
        let heading = "          JOBID PARTITION     USER   PRIORITY       SITE        AGE  FAIRSHARE  PARTITION        QOS\n";
        assert_eq!(render(&nobody, &answer()).unwrap(), heading);
        let wrong = Options {
            sort: "nosuch".into(),
            ..Options::default()
        };
        let refused = render(&wrong, &answer()).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "sprio: error: Invalid sort specification: h"
        );
        let gone = Options {
            jobs: vec![99],
            ..Options::default()
        };
        assert_eq!(
            render(&gone, &answer()).unwrap(),
            "Unable to find jobs matching user/id(s) specified\n"
        );
    }

    #[test]
    fn order_and_formats() {
        let options = Options {
            format: Some("%i %f %y".into()),
            no_header: true,
            sort: "r,-i".into(),
            ..Options::default()
        };
        assert_eq!(
            render(&options, &answer()).unwrap(),
            "15 1.0000000 0.00000256113708\n14 1.0000000 0.00000256113708\n"
        );
        let refused = render(&options, &PrioritiesAnswer::default()).unwrap_err();
        assert_eq!(refused.to_string(), NOT_RUNNING);
    }
}
