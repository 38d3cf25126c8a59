//! The shape of a row of the option table, and how rows are written: a chain of constant functions, so that the
//! table costs nothing at start.

/// A command that the table serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionCommand {
    /// sbatch.
    Sbatch,
    /// srun.
    Srun,
    /// salloc.
    Salloc,
}

impl OptionCommand {
    /// All of them.
    pub const ALL: [OptionCommand; 3] = [
        OptionCommand::Sbatch,
        OptionCommand::Srun,
        OptionCommand::Salloc,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            OptionCommand::Sbatch => "sbatch",
            OptionCommand::Srun => "srun",
            OptionCommand::Salloc => "salloc",
        }
    }
}

/// A set of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commands(u8);

impl Commands {
    /// sbatch.
    pub const B: Commands = Commands(1);
    /// srun.
    pub const R: Commands = Commands(2);
    /// salloc.
    pub const A: Commands = Commands(4);
    /// sbatch and srun.
    pub const BR: Commands = Commands(3);
    /// sbatch and salloc.
    pub const BA: Commands = Commands(5);
    /// srun and salloc.
    pub const RA: Commands = Commands(6);
    /// All three.
    pub const ALL: Commands = Commands(7);

    /// Whether `command` is in it.
    pub const fn has(self, command: OptionCommand) -> bool {
        self.0 & (1 << command as u8) != 0
    }

    /// Whether none is.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// Whether an option takes a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arg {
    /// No.
    None,
    /// Yes.
    Required,
    /// Only as `--long=value` or `-Xvalue`.
    Optional,
}

/// Where `--help` lists an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Execution of the job or step.
    Run,
    /// Which nodes will do.
    Constraint,
    /// Sharing and memory.
    Consumable,
    /// Sockets, cores, threads.
    Affinity,
    /// GPUs.
    Gpu,
    /// The site's own, of no table.
    Site,
    /// `--help` itself.
    Help,
    /// Anything else.
    Other,
}

/// Effect of an option here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionStatus {
    /// The effect in Slurm's manual.
    Works,
    /// A part of it, or with a gap, as the text says.
    Partly(&'static str),
    /// It is accepted and has no effect that could make a job's result wrong.
    StoredOnly {
        /// The missing effect.
        why: &'static str,
        /// The user gets a warning.
        warn: bool,
    },
    /// A job that asks for it is not accepted.
    Refused(&'static str),
}

/// One option.
#[derive(Clone, Copy, Debug)]
pub struct OptionRow {
    /// Long name, without dashes.
    pub long: &'static str,
    /// Short name.
    pub short: Option<char>,
    /// Whether it takes a value.
    pub arg: Arg,
    /// Name of the value in `--help`; empty when there is none.
    pub placeholder: &'static str,
    /// Commands that know it.
    pub commands: Commands,
    /// Whether an `#SBATCH` line may give it.
    pub directive: bool,
    /// Environment variables that give it, strongest last, for sbatch, srun and salloc.
    pub env: [&'static [&'static str]; 3],
    /// Where `--help` lists it.
    pub group: Group,
    /// One line on its effect.
    pub help: &'static str,
    /// Its effect here.
    pub status: OptionStatus,
    /// Another name of the option with this long name.
    pub same_as: Option<&'static str>,
}

/// A flag; more is chained on.
pub(super) const fn flag(long: &'static str, help: &'static str) -> OptionRow {
    OptionRow {
        long,
        short: None,
        arg: Arg::None,
        placeholder: "",
        commands: Commands::ALL,
        directive: true,
        env: [&[], &[], &[]],
        group: Group::Run,
        help,
        status: OptionStatus::Works,
        same_as: None,
    }
}

/// An option with a value.
pub(super) const fn opt(
    long: &'static str,
    placeholder: &'static str,
    help: &'static str,
) -> OptionRow {
    let mut row = flag(long, help);
    row.arg = Arg::Required;
    row.placeholder = placeholder;
    row
}

impl OptionRow {
    /// An option of the site's own, whose value the job keeps by the name of its variable.
    pub fn of_site(
        long: &'static str,
        arg: Arg,
        placeholder: &'static str,
        help: &'static str,
        variable: &'static [&'static str],
    ) -> OptionRow {
        let mut row = flag(long, help).group(Group::Site);
        (row.arg, row.placeholder) = (arg, placeholder);
        row.env = [variable; 3];
        row
    }

    pub(super) const fn optional(mut self) -> OptionRow {
        self.arg = Arg::Optional;
        self
    }

    pub(super) const fn short(mut self, short: char) -> OptionRow {
        self.short = Some(short);
        self
    }

    pub(super) const fn on(mut self, commands: Commands) -> OptionRow {
        self.commands = commands;
        self
    }

    pub(super) const fn group(mut self, group: Group) -> OptionRow {
        self.group = group;
        self
    }

    pub(super) const fn sbatch_env(mut self, names: &'static [&'static str]) -> OptionRow {
        self.env[OptionCommand::Sbatch as usize] = names;
        self
    }

    pub(super) const fn srun_env(mut self, names: &'static [&'static str]) -> OptionRow {
        self.env[OptionCommand::Srun as usize] = names;
        self
    }

    pub(super) const fn salloc_env(mut self, names: &'static [&'static str]) -> OptionRow {
        self.env[OptionCommand::Salloc as usize] = names;
        self
    }

    pub(super) const fn env(
        self,
        sbatch: &'static [&'static str],
        srun: &'static [&'static str],
        salloc: &'static [&'static str],
    ) -> OptionRow {
        self.sbatch_env(sbatch).srun_env(srun).salloc_env(salloc)
    }

    pub(super) const fn command_line_only(mut self) -> OptionRow {
        self.directive = false;
        self
    }

    /// Works in part.
    pub(super) const fn partly(mut self, how: &'static str) -> OptionRow {
        self.status = OptionStatus::Partly(how);
        self
    }

    /// Accepted without effect; the user gets a warning with the reason.
    pub(super) const fn warns(mut self, why: &'static str) -> OptionRow {
        self.status = OptionStatus::StoredOnly { why, warn: true };
        self
    }

    /// Accepted without effect that anyone would miss.
    pub(super) const fn stored(mut self, why: &'static str) -> OptionRow {
        self.status = OptionStatus::StoredOnly { why, warn: false };
        self
    }

    pub(super) const fn refused(mut self, why: &'static str) -> OptionRow {
        self.status = OptionStatus::Refused(why);
        self
    }

    pub(super) const fn same_as(mut self, long: &'static str) -> OptionRow {
        self.same_as = Some(long);
        self
    }

    /// Variables of a command.
    pub fn env_of(&self, command: OptionCommand) -> &'static [&'static str] {
        self.env[command as usize]
    }
}
