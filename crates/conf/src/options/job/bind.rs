//! Binding that options ask for: `--cpu-bind` with what other options imply of it, `--mem-bind`, `--hint`.

use crate::options::OptionError;
use crate::options::chosen::ChosenOptions;
use crate::options::values;
use muster_model::binding::{CpuBind, MemBind};
use muster_model::gpu_bind::GpuBind;

/// `--cpu-bind` of a step, made complete: `--hint`, `-B`, `--threads-per-core`, `--ntasks-per-core` and
/// `--ntasks-per-socket` say what tasks are bound to where it does not.
///
/// # Errors
/// A text that is no binding.
pub fn cpu_bind(chosen: &ChosenOptions) -> Result<Option<String>, OptionError> {
    let given = chosen.value("cpu-bind").unwrap_or("");
    let bind = CpuBind::parse(given).map_err(|e| {
        OptionError::fatal("Failed to parse --cpu-bind= values.").with_hint(e.to_string())
    })?;
    let text = match implied(chosen).filter(|_| bind.kind.is_none()) {
        Some(unit) if given.is_empty() => unit.to_owned(),
        Some(unit) => format!("{given},{unit}"),
        None => given.to_owned(),
    };
    Ok((!text.is_empty()).then_some(text))
}

/// `--ntasks-per-gpu` by its present or its old name.
pub(super) fn tasks_per_gpu(chosen: &ChosenOptions) -> Option<(&'static str, &str)> {
    ["ntasks-per-gpu", "ntasks-per-tres"]
        .into_iter()
        .find_map(|long| chosen.value(long).map(|text| (long, text)))
}

/// `--gpu-bind` of a step, made complete: `--tres-bind` and `--accel-bind` say the same in other words, and
/// `--ntasks-per-gpu` and `--gpus-per-task` imply it.
///
/// # Errors
/// A text that is no binding.
pub fn gpu_bind(chosen: &ChosenOptions) -> Result<Option<String>, OptionError> {
    if let Some(text) = chosen.value("gpu-bind").filter(|t| !t.is_empty()) {
        GpuBind::parse(text).map_err(|_| {
            OptionError::invalid(format!("Invalid --gpu-bind argument: gpu:{text}"))
        })?;
        return Ok(Some(text.to_owned()));
    }
    if let Some(text) = chosen.value("tres-bind").filter(|t| !t.is_empty()) {
        let bind = GpuBind::parse_tres(text).map_err(|item| {
            OptionError::fatal(format!("Invalid --tres-bind argument: {text}")).with_hint(format!(
                "'{item}' is not gres/gpu:TYPE, such as gres/gpu:closest"
            ))
        })?;
        return Ok(Some(bind));
    }
    if let Some(letters) = chosen.value("accel-bind").filter(|t| t.contains('g')) {
        let verbose = if letters.contains('v') {
            "verbose,"
        } else {
            ""
        };
        return Ok(Some(format!("{verbose}closest")));
    }
    if let Some((_, tasks)) = tasks_per_gpu(chosen) {
        return Ok(Some(format!("single:{tasks}")));
    }
    let each = chosen.value("gpus-per-task").and_then(values::gpus);
    let each = each.map(|list| list.iter().map(|gpu| gpu.count).sum::<u64>());
    Ok(each.filter(|n| *n > 0).map(|n| format!("per_task:{n}")))
}

/// `--mem-bind`.
///
/// # Errors
/// A text that is no binding.
pub fn mem_bind(chosen: &ChosenOptions) -> Result<Option<String>, OptionError> {
    let Some(text) = chosen.value("mem-bind").filter(|t| !t.is_empty()) else {
        return Ok(None);
    };
    MemBind::parse(text).map_err(|e| OptionError::invalid(e.to_string()))?;
    Ok(Some(text.to_owned()))
}

fn implied(chosen: &ChosenOptions) -> Option<&'static str> {
    if let Some(hint) = hint(chosen, &mut Vec::new()) {
        return match hint.to_ascii_lowercase().as_str() {
            "compute_bound" | "memory_bound" => Some("cores"),
            "multithread" | "nomultithread" => Some("threads"),
            _ => None,
        };
    }
    if let Some(text) = chosen.value("extra-node-info") {
        let depth = text.split(':').filter(|word| *word != "*").count();
        return match depth {
            0 => None,
            1 => Some("sockets"),
            2 => Some("cores"),
            _ => Some("threads"),
        };
    }
    let by_option = [
        ("threads-per-core", "threads"),
        ("ntasks-per-core", "cores"),
        ("ntasks-per-socket", "sockets"),
    ];
    let found = by_option.into_iter().find(|(long, _)| chosen.has(long));
    found.map(|(_, unit)| unit)
}

/// `--hint`, unless an option as strong says the same more exactly.
pub(super) fn hint<'a>(chosen: &'a ChosenOptions, warnings: &mut Vec<String>) -> Option<&'a str> {
    const RIVALS: [&str; 4] = [
        "ntasks-per-core",
        "threads-per-core",
        "extra-node-info",
        "cpu-bind",
    ];
    let given = chosen.get("hint")?;
    let only_loud = |text: &str| CpuBind::parse(text).is_ok_and(|bind| bind.kind.is_none());
    for long in RIVALS {
        let Some(rival) = chosen.get(long).filter(|r| r.source >= given.source) else {
            continue;
        };
        if long == "cpu-bind" && rival.value.as_deref().is_some_and(only_loud) {
            continue;
        }
        warnings.push(format!(
            "--hint is ignored beside --{long}, which says it more exactly"
        ));
        return None;
    }
    given.value.as_deref()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::chosen::Source;
    use crate::options::{OptionCommand, find};

    fn chosen(line: &[(&'static str, &str)]) -> ChosenOptions {
        let mut chosen = ChosenOptions::new(OptionCommand::Srun);
        for (long, value) in line {
            let row = find(OptionCommand::Srun, long).unwrap();
            chosen.give(row, Some((*value).to_owned()), Source::CommandLine);
        }
        chosen
    }

    fn bind(line: &[(&'static str, &str)]) -> String {
        cpu_bind(&chosen(line)).unwrap().unwrap_or_default()
    }

    #[test]
    fn other_options_imply_what_is_bound_to() {
        assert_eq!(bind(&[]), "");
        assert_eq!(bind(&[("cpu-bind", "verbose")]), "verbose");
        assert_eq!(bind(&[("hint", "compute_bound")]), "cores");
        let loud = [("cpu-bind", "v"), ("hint", "nomultithread")];
        assert_eq!(bind(&loud), "v,threads");
        assert_eq!(bind(&[("extra-node-info", "2:4")]), "cores");
        assert_eq!(bind(&[("extra-node-info", "1:2:1")]), "threads");
        assert_eq!(bind(&[("ntasks-per-socket", "2")]), "sockets");
        let exact = [("cpu-bind", "map_cpu:1"), ("ntasks-per-core", "1")];
        assert_eq!(bind(&exact), "map_cpu:1");
    }

    #[test]
    fn a_hint_yields_to_what_is_more_exact() {
        let c = chosen(&[("hint", "nomultithread"), ("ntasks-per-core", "1")]);
        let mut warnings = Vec::new();
        assert_eq!(hint(&c, &mut warnings), None);
        assert!(
            warnings[0].contains("beside --ntasks-per-core"),
            "{warnings:?}"
        );
        assert_eq!(cpu_bind(&c).unwrap().as_deref(), Some("cores"));
    }

    #[test]
    fn what_is_no_binding_is_refused() {
        let lines = |line| cpu_bind(&chosen(line)).unwrap_err().lines;
        assert_eq!(
            lines(&[("cpu-bind", "foo")]),
            [
                "unrecognized --cpu-bind argument \"foo\"",
                "Failed to parse --cpu-bind= values."
            ]
        );
        assert!(lines(&[("cpu-bind", "map_cpu:")])[0].contains("missing list"));
        let c = chosen(&[("mem-bind", "foo")]);
        let lines = mem_bind(&c).unwrap_err().lines;
        assert_eq!(lines, ["unrecognized --mem-bind argument \"foo\""]);
    }
}
