//! Commands to run on each host after the configuration was written.

use super::settings::{Auth, Settings};
use std::path::Path;

/// The commands, all of them from the controller's host.
pub(super) fn text(settings: &Settings, files: &[&Path]) -> String {
    let Settings {
        controller,
        slurm_user,
        nodes,
        ..
    } = settings;
    let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
    let names = names.join(" ");
    let mut text = String::from("Written:\n");
    for file in files {
        text += &format!("  {}\n", file.display());
    }
    text += &format!(
        "\nOn {controller}, root (in the directory of the packages; with RPM: dnf install, .rpm, /etc/sysconfig):\n\
         \x20 apt install ./muster-common_*.deb ./muster-client_*.deb ./muster-slurmctld_*.deb\n"
    );
    if settings.auth == Auth::Munge {
        text += "  apt install munge && mungekey --create --force && chown munge: /etc/munge/munge.key && systemctl restart munge\n";
    }
    text += &format!(
        "  id {slurm_user}\n  systemctl enable --now slurmctld\n\nFor all nodes, on {controller}:\n  for host in {names}; do\n\
         \x20   dir=$(ssh $host mktemp -d) && case $dir in *[!A-Za-z0-9/._-]*) exit 1;; esac &&\n\
         \x20   scp ./muster-common_*.deb ./muster-client_*.deb ./muster-slurmd_*.deb \"$host:$dir/\" &&\n\
         \x20   ssh $host \"chmod 755 $dir && apt install -y $dir/muster-*.deb; rm -r $dir\"\n\
         \x20   ssh $host \"echo SLURMD_OPTIONS=--conf-server={controller} > /etc/default/slurmd\"\n"
    );
    text += &match settings.auth {
        Auth::Keys => format!(
            "    muster node token $host | ssh $host muster node join - --controller {controller}\n"
        ),
        Auth::Munge => "    ssh $host 'apt install -y munge' && scp -p /etc/munge/munge.key $host:/etc/munge/munge.key\n    \
                        ssh $host 'chown munge: /etc/munge/munge.key && systemctl restart munge'\n"
            .to_owned(),
        Auth::Slurm => format!(
            "    ssh $host 'mkdir -p /etc/slurm' && scp -p {0} $host:/etc/slurm/slurm.key\n    \
             ssh $host 'chown {slurm_user}: /etc/slurm/slurm.key && chmod 0600 /etc/slurm/slurm.key'\n",
            settings.directory.join("slurm.key").display()
        ),
    };
    text += "    ssh $host systemctl enable --now slurmd\n  done\n  sinfo\n";
    if settings.auth == Auth::Keys {
        text += "\nUsers log in on the controller's host, or have tokens (SLURM_JWT) on login hosts: see docs/security.md, Keys of nodes.\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In /tmp, users of a node could have put packages of their own for root.
    #[test]
    fn packages_are_installed_from_a_directory_that_is_made_for_them() {
        let settings = Settings {
            cluster: "c".to_owned(),
            controller: "login".to_owned(),
            slurm_user: "slurm".to_owned(),
            partition: "batch".to_owned(),
            auth: Auth::Keys,
            has_accounting: false,
            has_cgroups: false,
            nodes: Vec::new(),
            directory: Path::new("/etc/slurm").to_owned(),
            is_forced: false,
        };
        let steps = text(&settings, &[]);
        assert!(!steps.contains("/tmp"), "{steps}");
        assert!(steps.contains("dir=$(ssh $host mktemp -d)"), "{steps}");
    }
}
