//! `muster class`: the job classes of the site, as the controller has read their file last; or a file, which `check` looks through.

use crate::connect::Client;
use crate::listing::{Failure, print, query};
use crate::options::{HelpForm, Spec, flag, opt};
use muster_conf::endpoint;
use muster_conf::grid_engine::{self, Mapping};
use muster_conf::job_classes::{DEFAULT, FILE, JobClasses, TEMPLATE};
use muster_conf::{Diagnostic, load};
use muster_model::job_class::NO_CLASS;
use std::path::{Path, PathBuf};

/// muster class.
pub(crate) static SPEC: Spec = Spec {
    name: "muster-class",
    about: "Shows and checks the job classes of the site (job_classes.conf beside the controller's slurm.conf).",
    operands: "list | show NAME[.VARIANT] | check",
    form: HelpForm::Options,
    options: &[
        opt(
            "file",
            "FILE",
            "this file instead of what the controller has read",
        )
        .short('f'),
        flag("help", "print this help").short('h'),
        flag("usage", "print a short summary"),
    ],
    variables: &[],
    notes: "\
'list' has a line for each class and variant, '*' before the default one; 'show NAME' prints a class as its file may have it, \
'show NAME.VARIANT' the rules that a job of the variant keeps; 'check' says what is wrong with the file, with line and way \
out, before the controller reads it. The controller is asked for the others, so that hosts without the file show them, too. sbatch --class, srun --class, salloc --class and qsub -jc submit jobs of a class.",
};

/// The classes that the controller has read last, whatever is beside slurm.conf here.
///
/// # Errors
/// It cannot be asked.
pub(crate) fn ask_for_classes() -> Result<JobClasses, String> {
    let mut client = Client::connect().map_err(|e| e.to_string())?;
    let text = query::job_classes(&mut client).map_err(|e| e.to_string())?;
    // Parts of it that the controller has left out are left out here.
    Ok(JobClasses::parse(&text, FILE).0)
}

/// The classes beside slurm.conf, and errors of their file. Without the file there are none.
///
/// # Errors
/// The file cannot be read.
fn load_classes(file: Option<&Path>) -> Result<(JobClasses, Vec<Diagnostic>), String> {
    let conf = endpoint::conf_path();
    let path: PathBuf = file.map_or_else(|| conf.with_file_name(FILE), Path::to_owned);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound && file.is_none() => String::new(),
        Err(e) => return Err(format!("cannot read {}: {e}", path.display())),
    };
    let (classes, mut findings) = JobClasses::parse(&text, &path.display().to_string());
    let mapping = std::fs::read_to_string(path.with_file_name(grid_engine::FILE));
    let mapping = Mapping::parse(&mapping.unwrap_or_default(), grid_engine::FILE).0;
    let (config, _) = load(&path.with_file_name(conf.file_name().unwrap_or_default()));
    findings.extend(classes.check(&mapping, &config.gres_types));
    Ok((classes, findings))
}

/// Runs it.
pub(crate) fn run(args: &[String]) -> Result<(), Failure> {
    let parsed = SPEC.parse(args).map_err(Failure::new)?;
    let has = |name: &str| parsed.options.iter().any(|(option, _)| *option == name);
    if has("help") || has("usage") {
        print(&if has("help") {
            SPEC.help()
        } else {
            SPEC.usage()
        });
        return Ok(());
    }
    let fail = |why: String| Failure::new(format!("muster class: {why}"));
    let file = parsed.options.iter().find(|(option, _)| *option == "file");
    let file = file.and_then(|(_, value)| value.as_deref()).map(Path::new);
    let words: Vec<&str> = parsed.operands.iter().map(String::as_str).collect();
    let classes = || match file {
        Some(_) => load_classes(file).map(|(classes, _)| classes),
        None => ask_for_classes(),
    };
    match words.as_slice() {
        ["check"] => {
            let (classes, findings) = load_classes(file).map_err(fail)?;
            let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
            match lines.is_empty() {
                true => print(&format!(
                    "{} classes, nothing is wrong\n",
                    classes.classes.len()
                )),
                false => return Err(Failure::new(lines.join("\n"))),
            }
        }
        ["list"] => print(&list(&classes().map_err(fail)?)),
        ["show", name] => {
            let classes = classes().map_err(fail)?;
            match classes.show(name) {
                Some(text) => print(&text),
                None => print(&classes.template(name).map_err(fail)?.text()),
            }
        }
        _ => {
            let usage = SPEC.usage();
            return Err(fail(format!(
                "list, show NAME or check is expected\n{}",
                usage.trim_end()
            )));
        }
    }
    Ok(())
}

/// The names of classes and of their variants, as jobs ask for them.
pub(crate) fn names(classes: &JobClasses) -> Vec<String> {
    let own = classes
        .classes
        .iter()
        .filter(|class| class.name != TEMPLATE);
    let with_variants = own.flat_map(|class| {
        let others = class.variants.iter().filter(|own| *own != DEFAULT);
        let others = others.map(|variant| format!("{}.{variant}", class.name));
        std::iter::once(class.name.clone()).chain(others)
    });
    with_variants.collect()
}

/// Classes with their variants, and who may use them.
fn list(classes: &JobClasses) -> String {
    let mut text = String::new();
    for class in classes
        .classes
        .iter()
        .filter(|class| class.name != TEMPLATE)
    {
        let lists = |names: &[String]| match names.is_empty() {
            true => "everybody".to_owned(),
            false => names.join(","),
        };
        let others = class.variants.iter().filter(|own| *own != DEFAULT);
        let names = others.map(|variant| format!("{}.{variant}", class.name));
        for name in [class.name.clone()].into_iter().chain(names) {
            let is_default = classes.default.as_ref() == Some(&name);
            let mark = if is_default { '*' } else { ' ' };
            let mut users = lists(&class.user_lists);
            if !class.xuser_lists.is_empty() {
                users += &format!(" but {}", class.xuser_lists.join(","));
            }
            text += &format!("{mark}{name:<30} {users}\n");
        }
    }
    if classes.enforce {
        text += &format!("enforce_jc: a job must have a class; --class={NO_CLASS} is refused\n");
    }
    text
}
