//! Factors of a job's priority (`priority/multifactor`).

use minicbor::{Decode, Encode};

/// Factors of a job in a partition, each times its weight, and their sum.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct Factors {
    /// Set by the site or an administrator.
    #[n(0)]
    pub site: f64,
    /// Waiting time.
    #[n(1)]
    pub age: f64,
    /// The association's priority.
    #[n(2)]
    pub assoc: f64,
    /// Fair share.
    #[n(3)]
    pub fair_share: f64,
    /// Size.
    #[n(4)]
    pub job_size: f64,
    /// The partition's `PriorityJobFactor`.
    #[n(5)]
    pub partition: f64,
    /// The QOS's priority.
    #[n(6)]
    pub qos: f64,
    /// Resources: name and weighted factor.
    #[n(7)]
    pub tres: Vec<(String, f64)>,
    /// `--nice`, taken away.
    #[n(8)]
    pub nice: i32,
}

impl Factors {
    /// All but age.
    pub fn without_age(&self) -> f64 {
        let tres: f64 = self.tres.iter().map(|(_, f)| f).sum();
        self.site + self.assoc + self.fair_share + self.job_size + self.partition + self.qos + tres
            - f64::from(self.nice)
    }

    /// The priority.
    pub fn priority(&self) -> u32 {
        Factors::total(self.age, self.without_age())
    }

    /// Priority of a job from its factor of age and the sum of the others.
    pub fn total(age: f64, without_age: f64) -> u32 {
        let sum = age + without_age;
        // At least 1: 0 is a hold.
        sum.clamp(1.0, f64::from(u32::MAX)) as u32
    }
}

/// Reads `CPU=1.0,Mem=0.25G,GRES/gpu=2`: weights of one CPU, one MiB, one device. What cannot be read weighs nothing.
pub fn tres_weights(text: &str) -> impl Iterator<Item = (&str, f64)> {
    text.split(',').filter_map(|word| {
        let (name, value) = word.split_once('=')?;
        let is_of_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-');
        let (digits, unit) = match value.find(|c: char| !is_of_number(c)) {
            Some(at) => value.split_at(at),
            None => (value, ""),
        };
        // A weight of a larger unit is divided by its size in MiB.
        let per_mib = match unit.to_ascii_uppercase().as_str() {
            "" | "M" => 1.0,
            "K" => 1024.0,
            "G" => 1.0 / 1024.0,
            "T" => 1.0 / 1_048_576.0,
            "P" => 1.0 / 1_073_741_824.0,
            _ => return None,
        };
        let per_unit = if name.trim().eq_ignore_ascii_case("mem") {
            per_mib
        } else {
            1.0
        };
        Some((name.trim(), digits.parse::<f64>().ok()? * per_unit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights() {
        let text = "CPU=1.5,Mem=-0.5G,GRES/gpu=2,x=y";
        let read: Vec<(&str, f64)> = tres_weights(text).collect();
        assert_eq!(
            read,
            [("CPU", 1.5), ("Mem", -0.5 / 1024.0), ("GRES/gpu", 2.0)]
        );
    }
}
