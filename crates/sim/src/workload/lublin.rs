//! The workload model of Lublin and Feitelson ("The workload on parallel supercomputers: modeling the characteristics
//! of rigid jobs", Journal of Parallel and Distributed Computing 63, 2003), written from the paper: sizes from a
//! two-stage uniform distribution of their logarithm with an emphasis on powers of two, run times from a
//! hyper-gamma distribution of their logarithm that depends on the size, arrivals from a gamma distribution of the
//! logarithm of the gaps over a daily cycle. The model knows neither users nor limits; both are added here.

use super::{Workload, WorkloadJob};
use crate::random::Random;

/// Settings of a workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Number of jobs.
    pub jobs: u32,
    /// Processors of the machine; the largest job has as many.
    pub processors: u32,
    /// Everything follows from it.
    pub seed: u64,
    /// Offered load to scale the gaps to; as the model gives it when absent.
    pub load: Option<f64>,
    /// Limits as users ask for them: round and too high. Otherwise a limit is the run time.
    pub rounded_limits: bool,
    /// Users the jobs are spread over, a few with many jobs.
    pub users: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            jobs: 10_000,
            processors: 256,
            seed: 1,
            load: None,
            rounded_limits: true,
            users: 64,
        }
    }
}

/// Share of jobs with one processor.
const SERIAL: f64 = 0.244;
/// Share of the others whose size is a power of two.
const POWER_OF_TWO: f64 = 0.576;
/// Logarithm (base 2) of the least size of a parallel job.
const SIZE_LOW: f64 = 0.8;
/// Distance of the middle of the two-stage distribution below the largest size, as a logarithm.
const SIZE_MIDDLE_BELOW: f64 = 2.5;
/// Share of parallel jobs below that middle.
const SIZE_LOW_SHARE: f64 = 0.86;
/// Shape and scale of the short and the long run times (natural logarithm of seconds).
const RUN_SHORT: (f64, f64) = (4.2, 0.94);
const RUN_LONG: (f64, f64) = (312.0, 0.03);
/// Share of short run times: a line over the size.
const SHORT_SLOPE: f64 = -0.0054;
const SHORT_AT_ZERO: f64 = 0.78;
/// Shape and scale of the gaps between arrivals (natural logarithm of seconds) in the busy hours.
const GAP: (f64, f64) = (10.2303, 0.4871);
/// Shape and scale of the daily cycle over half hours, counted from midnight; the day begins at half hour 11.
const CYCLE: (f64, f64) = (8.1737, 3.9631);
const DAY_BEGINS: u32 = 11;
const HALF_HOURS: u32 = 48;
/// Longest gap and run time, as natural logarithms of seconds: the model's tails have no end.
const GAP_MOST: f64 = 13.0;
const RUN_MOST: f64 = 12.0;
/// Limits that users ask for, seconds.
const ROUND_S: [u64; 14] = [
    300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 28_800, 43_200, 64_800, 86_400, 172_800,
    345_600,
];

/// Makes a workload.
pub fn generate(options: &Options) -> Workload {
    let mut random = Random::new(options.seed, 0x10b1);
    let cycle = cycle();
    let mut clock = Clock { at_s: 0.0, cycle };
    let mut workload = Workload {
        processors: options.processors.max(1),
        ..Workload::default()
    };
    for number in 1..=u64::from(options.jobs) {
        clock.arrive(gamma(&mut random, GAP).min(GAP_MOST).exp());
        let processors = size(&mut random, options.processors.max(1));
        let run_s = run_time(&mut random, processors);
        let limit_s = match options.rounded_limits {
            true => limit(&mut random, run_s),
            false => run_s,
        };
        workload.jobs.push(WorkloadJob {
            number,
            submit_s: clock.at_s as u64,
            run_s,
            processors,
            limit_s,
            user: user(&mut random, options.users.max(1)),
            program: None,
        });
    }
    let mut workload = workload.settle();
    if let Some(load) = options.load.filter(|load| *load > 0.0) {
        workload.scale_to_load(load);
    }
    workload
}

/// Weight of each half hour from midnight; their mean is 1.
fn cycle() -> [f64; HALF_HOURS as usize] {
    let (shape, scale) = CYCLE;
    let density = |x: f64| x.powf(shape - 1.0) * (-x / scale).exp();
    let mut weights = [0.0; HALF_HOURS as usize];
    for slot in DAY_BEGINS..DAY_BEGINS + HALF_HOURS {
        weights[(slot % HALF_HOURS) as usize] = density(f64::from(slot) + 0.5);
    }
    let mean: f64 = weights.iter().sum::<f64>() / f64::from(HALF_HOURS);
    weights.map(|w| w / mean)
}

struct Clock {
    at_s: f64,
    cycle: [f64; HALF_HOURS as usize],
}

impl Clock {
    /// Goes on by a gap that is as long as given at mean intensity, and shorter or longer by the time of day.
    fn arrive(&mut self, gap_s: f64) {
        let mut left = gap_s;
        loop {
            let slot = (self.at_s / 1800.0).floor();
            let weight = self.cycle[(slot as u64 % u64::from(HALF_HOURS)) as usize];
            let slot_end = (slot + 1.0) * 1800.0;
            let worth = (slot_end - self.at_s) * weight;
            if worth >= left {
                self.at_s += left / weight;
                return;
            }
            left -= worth;
            self.at_s = slot_end;
        }
    }
}

fn size(random: &mut Random, most: u32) -> u32 {
    if most == 1 || unit(random) <= SERIAL {
        return 1;
    }
    let high = f64::from(most).log2();
    let middle = (high - SIZE_MIDDLE_BELOW).clamp(SIZE_LOW.min(high), high);
    let (from, to) = match unit(random) <= SIZE_LOW_SHARE {
        true => (SIZE_LOW.min(middle), middle),
        false => (middle, high),
    };
    let exponent = from + (to - from) * unit(random);
    let size = match unit(random) <= POWER_OF_TWO {
        true => exponent.round().exp2(),
        false => exponent.exp2().round(),
    };
    (size as u32).clamp(1, most)
}

fn run_time(random: &mut Random, processors: u32) -> u64 {
    let short = (SHORT_SLOPE * f64::from(processors) + SHORT_AT_ZERO).clamp(0.0, 1.0);
    let shape = match unit(random) <= short {
        true => RUN_SHORT,
        false => RUN_LONG,
    };
    (gamma(random, shape).min(RUN_MOST).exp().round() as u64).max(1)
}

/// A user's time limit: some multiple of the run time, up to the next round number.
fn limit(random: &mut Random, run_s: u64) -> u64 {
    let wanted = run_s as f64 / unit(random).max(0.05);
    let round = ROUND_S.into_iter().find(|s| *s as f64 >= wanted);
    round.unwrap_or(ROUND_S[ROUND_S.len() - 1]).max(run_s)
}

/// A user: the n-th has 1/n of the first one's jobs.
fn user(random: &mut Random, users: u32) -> u32 {
    let total: f64 = (1..=users).map(|n| 1.0 / f64::from(n)).sum();
    let mut left = unit(random) * total;
    for n in 1..users {
        left -= 1.0 / f64::from(n);
        if left <= 0.0 {
            return n;
        }
    }
    users
}

/// A number in `0.0..1.0`, without 0.
fn unit(random: &mut Random) -> f64 {
    ((random.next() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
}

/// Gamma distributed, by the method of Marsaglia and Tsang; every shape used here is over 1.
fn gamma(random: &mut Random, (shape, scale): (f64, f64)) -> f64 {
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let normal =
            (-2.0 * unit(random).ln()).sqrt() * (std::f64::consts::TAU * unit(random)).cos();
        let v = (1.0 + c * normal).powi(3);
        if v > 0.0 && unit(random).ln() < normal * normal / 2.0 + d - d * v + d * v.ln() {
            return d * v * scale;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_workload() {
        let options = Options {
            jobs: 200,
            ..Options::default()
        };
        assert_eq!(generate(&options), generate(&options));
        let other = Options {
            seed: 2,
            ..options.clone()
        };
        assert_ne!(generate(&other), generate(&options));
    }

    #[test]
    fn jobs_are_as_the_model_says() {
        let workload = generate(&Options::default());
        let share = |test: fn(&WorkloadJob) -> bool| {
            workload.jobs.iter().filter(|j| test(j)).count() as f64 / workload.jobs.len() as f64
        };
        let serial = share(|j| j.processors == 1);
        // Parallel sizes that round to one processor come on top.
        assert!((SERIAL - 0.02..SERIAL + 0.12).contains(&serial), "{serial}");
        assert!(share(|j| j.processors.is_power_of_two()) > 0.6);
        assert!(
            workload
                .jobs
                .iter()
                .all(|j| (1..=256).contains(&j.processors))
        );
        assert!(
            workload
                .jobs
                .iter()
                .all(|j| j.limit_s >= j.run_s && j.run_s > 0)
        );
        let day = share(|j| (8 * 3600..20 * 3600).contains(&(j.submit_s % 86_400)));
        assert!(day > 0.6, "most jobs are submitted by day: {day}");
        assert!(
            workload
                .jobs
                .windows(2)
                .all(|w| w[0].submit_s <= w[1].submit_s)
        );
    }

    #[test]
    fn the_load_is_what_was_asked_for() {
        let options = Options {
            load: Some(0.7),
            ..Options::default()
        };
        let load = generate(&options).offered_load();
        assert!((load - 0.7).abs() < 0.01, "{load}");
    }
}
