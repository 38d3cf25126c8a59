//! Times and amounts of memory of Torque.

use super::AmountUnits;

/// A limit as a value of `--time`: whole minutes, unless the text is one of sbatch's own.
pub(super) fn time_limit(text: &str, units: AmountUnits) -> Result<String, String> {
    let wrong = || "it is no time: [[[DAYS:]HOURS:]MINUTES:]SECONDS".to_owned();
    if units == AmountUnits::Slurm {
        return match text.is_empty() {
            true => Err(wrong()),
            false => Ok(text.to_owned()),
        };
    }
    let mut parts = Vec::new();
    for part in text.split(':') {
        let is_plain = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        let number = part.parse::<u64>().ok().filter(|_| is_plain);
        parts.push(number.ok_or_else(wrong)?);
    }
    let units_s = [1, 60, 3600, 86_400];
    if parts.len() > units_s.len() {
        return Err(wrong());
    }
    let mut seconds: u64 = 0;
    for (number, unit) in parts.iter().rev().zip(units_s) {
        let part = number.checked_mul(unit).ok_or_else(wrong)?;
        seconds = seconds.checked_add(part).ok_or_else(wrong)?;
    }
    Ok(seconds.div_ceil(60).max(1).to_string())
}

/// An amount of memory in MiB, rounded up.
pub(super) fn memory(text: &str, units: AmountUnits) -> Result<u64, String> {
    let wrong =
        || "it is no amount of memory: a number with b, kb, mb, gb, tb or kw, mw, gw".to_owned();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let number: u64 = text[..digits].parse().map_err(|_| wrong())?;
    let unit = text[digits..].to_ascii_lowercase();
    let (scale, is_words) = match unit.as_str() {
        "" if units == AmountUnits::Slurm => ("m", false),
        "" => ("", false),
        unit => match (unit.strip_suffix('w'), unit.strip_suffix('b')) {
            (Some(scale), _) => (scale, true),
            (None, Some(scale)) => (scale, false),
            (None, None) => (unit, false),
        },
    };
    let shift = match scale {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        "p" => 50,
        _ => return Err(wrong()),
    };
    let word = if is_words { 8 } else { 1 };
    let bytes = u128::from(number) * word * (1_u128 << shift);
    let mib = bytes.div_ceil(1 << 20);
    u64::try_from(mib).map_err(|_| wrong())
}
