//! Settings of the programs that the controller runs for a site, from slurm.conf.

use muster_conf::Config;
use muster_conf::webhooks::{self, WebhookSettings};
use std::path::PathBuf;

/// Settings of these programs, from slurm.conf.
#[derive(Clone, Debug, Default)]
pub struct ProgramSettings {
    pub(crate) mail_program: String,
    pub(crate) mail_domain: Option<String>,
    pub(crate) prolog: Option<String>,
    pub(crate) epilog: Option<String>,
    pub(crate) completion: Completion,
    pub(crate) power: PowerPrograms,
    pub(crate) cluster: String,
    pub(crate) conf_path: String,
    /// Addresses that notices are sent to.
    pub(crate) webhooks: Vec<WebhookSettings>,
}

impl ProgramSettings {
    /// Reads them.
    pub(crate) fn read(config: &Config) -> ProgramSettings {
        let text = |key: &str| {
            let value = config.text(key).filter(|v| !v.is_empty() && *v != "(null)");
            value.map(str::to_owned)
        };
        ProgramSettings {
            mail_program: mail_program(config),
            mail_domain: text("MailDomain"),
            prolog: text("PrologSlurmctld"),
            epilog: text("EpilogSlurmctld"),
            completion: Completion::read(config),
            power: PowerPrograms::read(config),
            cluster: config.cluster_name.clone(),
            conf_path: config.path.display().to_string(),
            webhooks: webhooks(config),
        }
    }
}

/// Webhooks of the file beside slurm.conf. Its errors were found when the configuration was checked.
pub(crate) fn webhooks(config: &Config) -> Vec<WebhookSettings> {
    let path = config.path.with_file_name(webhooks::FILE);
    let text = muster_conf::optional_text(&path).unwrap_or_default();
    webhooks::parse(&text, webhooks::FILE).0
}

/// `MailProg`; the default is where the system has it.
fn mail_program(config: &Config) -> String {
    let given = config.raw.get("MailProg").map(|s| s.value.clone());
    given.unwrap_or_else(|| {
        let usual = ["/bin/mail", "/usr/bin/mail"];
        let found = usual.iter().find(|p| PathBuf::from(p).exists());
        (*found.unwrap_or(&usual[0])).to_owned()
    })
}

/// Where records go.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Completion {
    /// Nowhere.
    #[default]
    None,
    /// A line each into this file.
    File(PathBuf),
    /// This program is run for each.
    Script(String),
}

impl Completion {
    pub(crate) fn read(config: &Config) -> Completion {
        let kind = config.text("JobCompType").unwrap_or_default();
        let place = config.text("JobCompLoc").unwrap_or_default().to_owned();
        match kind.trim_start_matches("jobcomp/") {
            "filetxt" => Completion::File(PathBuf::from(place)),
            "script" => Completion::Script(place),
            _ => Completion::None,
        }
    }
}

/// The programs, from slurm.conf.
#[derive(Clone, Debug, Default)]
pub(crate) struct PowerPrograms {
    pub(crate) suspend: Option<String>,
    pub(crate) resume: Option<String>,
    pub(crate) resume_failed: Option<String>,
    /// Where files for them lie.
    pub(crate) dir: PathBuf,
}

impl PowerPrograms {
    pub(crate) fn read(config: &Config) -> PowerPrograms {
        let text = |key: &str| {
            let value = config.text(key).filter(|v| !v.is_empty() && *v != "(null)");
            value.map(str::to_owned)
        };
        PowerPrograms {
            suspend: text("SuspendProgram"),
            resume: text("ResumeProgram"),
            resume_failed: text("ResumeFailProgram"),
            dir: config.paths.state_save_location.clone(),
        }
    }
}
