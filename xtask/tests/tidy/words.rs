//! Words that are not those of the field: a reader who looks for the usual term does not find it, and one who finds them has
//! to ask for their meaning. And comments with a clause in place of a noun, which one has to read twice.

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

/// First words of comments that name their subject by a clause: "What waits" instead of "Waiting messages".
const CLAUSES: [&str; 7] = ["What", "Who", "Whose", "Whom", "Those", "Of", "How"];

/// Words after "what" that make it a clause in place of a noun.
const AFTER_WHAT: [&str; 4] = ["is", "was", "it", "they"];

#[test]
fn comments_name_their_subject() {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for source in product() {
        let comments = comments(&source.text);
        let unclear = comments.iter().filter(|comment| has_clause(comment));
        let count = unclear.count();
        if count > 0 {
            *counts.entry(source.package).or_default() += count;
        }
    }
    bounds::check("clauses", &counts);
}

/// Whether a comment begins with a clause or with a reference to another comment, or has "what is", "what was", "what it" or "what they".
fn has_clause(comment: &str) -> bool {
    let words: Vec<&str> = comment
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect();
    words.first().is_some_and(|first| CLAUSES.contains(first))
        || words.starts_with(&["The", "same"])
        || words
            .windows(2)
            .any(|pair| pair[0] == "what" && AFTER_WHAT.contains(&pair[1]))
}

/// The comments of a source, lines of one kind that follow each other as one.
fn comments(text: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut before = None;
    for line in text.lines().map(str::trim_start) {
        let kinds = ["///", "//!", "//"];
        let kind = kinds.into_iter().find(|kind| line.starts_with(kind));
        let body = kind.and_then(|kind| line.strip_prefix(kind));
        match (body, all.last_mut()) {
            (Some(body), Some(last)) if kind == before => last.push_str(body),
            (Some(body), _) => all.push(body.to_owned()),
            (None, _) => {}
        }
        before = kind;
    }
    all
}

#[test]
fn clauses_are_found_in_comments() {
    let text = "//! Whose it is.\nlet a = 1;\n// The rest of what\n// they send.\n/// Whatever is there.\n// Done: what the user has.";
    let found: Vec<bool> = comments(text).iter().map(|text| has_clause(text)).collect();
    assert_eq!(found, [true, true, false, false]);
}

#[test]
fn words_of_names_are_words() {
    let found: Vec<String> = words("fn told_by(LastTold, ToldX) // untold 'door'").collect();
    let expected = [
        "fn", "told", "by", "last", "told", "told", "x", "untold", "door",
    ];
    assert_eq!(found, expected);
}
