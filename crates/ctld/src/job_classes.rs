//! The job classes of the site, as they were when the configuration was read last: what each submission gets of its class, and what
//! a change of a job may do. A class that is changed in the file changes no job that there is. What rules mean is in
//! `muster_verifier::job_class`.

use minicbor::bytes::ByteVec;
use muster_conf::Config;
use muster_conf::grid_engine::{self, Mapping};
use muster_conf::job_classes::{self, JobClasses};
use muster_model::command::{Identity, JobUpdate};
use muster_model::job_class::{JobClass, NO_CLASS};
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::spec::JobSpec;
use muster_verifier::job_class;
use muster_verifier::jsv::Site;
use std::io;
use std::path::Path;

/// Classes, and what names of their resources stand for.
#[derive(Clone, Debug, Default)]
pub(crate) struct SiteClasses {
    classes: JobClasses,
    /// The text of the file, for clients without it. Users may not be allowed to read the file, with its comments.
    text: String,
    site: Site,
}

impl SiteClasses {
    /// The classes of the file beside slurm.conf. Errors of the file were found when the configuration was checked.
    ///
    /// # Errors
    /// One of the files cannot be read.
    pub(crate) fn of(config: &Config) -> io::Result<SiteClasses> {
        let read = |name: &str| -> io::Result<(String, String)> {
            let path = config.path.with_file_name(name);
            let text = muster_conf::optional_text(&path)?;
            Ok((text, path.display().to_string()))
        };
        let (text, file) = read(job_classes::FILE)?;
        let (mapping_text, mapping_file) = read(grid_engine::FILE)?;
        Ok(SiteClasses {
            classes: JobClasses::parse(&text, &file).0,
            text: job_classes::accepted_text(&text),
            site: Site {
                mapping: Mapping::parse(&mapping_text, &mapping_file).0,
                gres: config.gres_types.clone(),
            },
        })
    }

    /// The accepted lines of the file.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Whether jobs that name no class have one.
    pub(crate) fn has_default(&self) -> bool {
        self.classes.default.is_some()
    }

    /// Makes a job of the class that its user named, or of the site's own; of none, if there is none.
    ///
    /// # Errors
    /// There is no such class, the user may not have it, or it does not allow what the job asks for.
    pub(crate) fn apply(
        &self,
        identity: &Identity,
        spec: &mut JobSpec,
        context: &mut Option<ByteVec>,
    ) -> Result<(), Refusal> {
        let named = spec
            .class
            .take()
            .map(|own| *own)
            .filter(|own| !own.name.is_empty());
        let asked = match (named, &self.classes.default) {
            (Some(own), _) => own,
            (None, Some(name)) => JobClass {
                name: name.clone(),
                given: given(spec),
                ..JobClass::default()
            },
            (None, None) => JobClass {
                name: NO_CLASS.to_owned(),
                ..JobClass::default()
            },
        };
        if asked.name.eq_ignore_ascii_case(NO_CLASS) {
            return match self.classes.enforce {
                false => Ok(()),
                true => Err(denied(
                    "the site takes no job without a class: name one by --class or -jc".to_owned(),
                )),
            };
        }
        let template = self.classes.template(&asked.name).map_err(denied)?;
        if identity.uid != 0
            && !self
                .classes
                .may_use(&template.name, &identity.user, &identity.groups)
        {
            let (user, class) = (&identity.user, &template.name);
            return Err(denied(format!(
                "user {user} may not use job class \"{class}\""
            )));
        }
        spec.class = Some(Box::new(asked));
        job_class::apply(spec, context, &template, &self.site).map_err(denied)
    }

    /// Checks a change of a job.
    ///
    /// # Errors
    /// The job's class does not allow it.
    pub(crate) fn check_update(&self, spec: &JobSpec, update: &JobUpdate) -> Result<(), Refusal> {
        job_class::check_update(spec, update, &self.site).map_err(denied)
    }
}

fn denied(why: String) -> Refusal {
    Refusal::new(RefusalCode::AccessDenied, why)
}

/// The options that the user named for a job whose class is the site's: a client names these only beside a class.
fn given(spec: &JobSpec) -> Vec<String> {
    let base = Path::new(&spec.command)
        .file_name()
        .unwrap_or_default()
        .to_string_lossy();
    let usual = [&*base, "sbatch", "wrap", "STDIN", "interactive", ""];
    match usual.contains(&spec.name.as_str()) {
        true => Vec::new(),
        false => vec!["N".to_owned()],
    }
}
