//! Words that are not those of the field: a reader who looks for the usual term does not find it, and one who finds them has
//! to ask what they mean.

use crate::bounds;
use crate::source::product;
use std::collections::BTreeMap;

/// Words, and what to write instead. They are counted in names, comments and texts alike.
const DENIED: [(&str, &str); 31] = [
    ("alike", "equal, equivalent, of the same template"),
    ("cradle", "child slot"),
    ("door", "socket"),
    ("elsewhere", "redirected"),
    ("fate", "state, use"),
    ("ground", "source of nodes"),
    ("happening", "event"),
    ("hear", "receive"),
    ("heard", "received, reported"),
    ("hears", "receives"),
    ("heed", "use, read"),
    ("heeded", "used, read"),
    ("heeds", "uses, reads"),
    ("hopeful", "unblocked"),
    ("hopefuls", "unblocked lanes"),
    ("loosened", "relaxed"),
    ("mistrust", "verification error"),
    ("nursery", "spawner"),
    ("standing", "tier"),
    ("tenant", "allocation"),
    ("tenants", "allocations"),
    ("told", "reported, sent, notified"),
    ("unheard", "unreported, unacknowledged"),
    ("untold", "unreported"),
    ("vacated", "after preemption"),
    ("visitor", "client"),
    ("whoever", "the process, the user"),
    ("wish", "request, option"),
    ("wished", "requested"),
    ("wishes", "requests, options"),
    ("yielding", "preemptable"),
];

#[test]
fn no_denied_word_is_added() {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for source in product() {
        for word in words(&source.text) {
            if DENIED.iter().any(|(denied, _)| *denied == word) {
                *counts
                    .entry(format!("{} {word}", source.package))
                    .or_default() += 1;
            }
        }
    }
    bounds::check("words", &counts);
}

/// The words of a text, those in names included, in lower case.
fn words(text: &str) -> impl Iterator<Item = String> {
    let mut all = Vec::new();
    let mut word = String::new();
    let mut before = ' ';
    for c in text.chars() {
        let begins = c.is_uppercase() && before.is_lowercase();
        if !word.is_empty() && (begins || !c.is_alphabetic()) {
            all.push(std::mem::take(&mut word));
        }
        if c.is_alphabetic() {
            word.extend(c.to_lowercase());
        }
        before = c;
    }
    all.extend(Some(word).filter(|word| !word.is_empty()));
    all.into_iter()
}

#[test]
fn words_of_names_are_words() {
    let found: Vec<String> = words("fn told_by(LastTold, ToldX) // untold 'door'").collect();
    let expected = [
        "fn", "told", "by", "last", "told", "told", "x", "untold", "door",
    ];
    assert_eq!(found, expected);
}
