//! Runs every fuzz target on what is kept of its inputs, without the fuzzing engine.

#[path = "../../../../fuzz/src/targets.rs"]
mod targets;

use std::fs;
use std::path::Path;
use targets::TARGETS;

#[test]
fn targets_hold_on_their_corpus() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for target in TARGETS {
        let seeds = (target.seeds)();
        assert!(!seeds.is_empty(), "{}", target.name);
        seeds.iter().for_each(|input| (target.run)(input));
        let kept = fs::read_dir(corpus.join(target.name)).into_iter().flatten();
        let mut files: Vec<_> = kept.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        for file in files {
            // What fails is named by what was printed last.
            println!("{}", file.display());
            (target.run)(&fs::read(&file).unwrap());
        }
    }
}
