//! `--constraint`, `--prefer` and `Features=` of reservations: expressions over node features, with counts of nodes
//! (`a*2&b*3`).

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

/// Most alternatives that `[a|b]` groups of one expression may multiply to.
const ALTERNATIVES_MAX: usize = 64;

/// Most features that an expression may name.
const FEATURES_MAX: usize = 256;

/// An expression without `[..]` groups.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Expr {
    /// A node has this feature.
    Feature(String),
    /// All of these (`&`).
    All(Vec<Expr>),
    /// One of these at least (`|`).
    Any(Vec<Expr>),
    /// At least that many nodes satisfy it.
    Count(Box<Expr>, u32),
}

/// One way to satisfy a constraint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Alternative {
    /// The expression that every node satisfies.
    pub each: Expr,
    /// Expressions with the number of nodes that satisfy them, each node counted once. Each expression is there once.
    pub counts: Vec<(Expr, u32)>,
}

impl Expr {
    /// Whether a node with these features satisfies it.
    pub fn holds(&self, features: &[String]) -> bool {
        match self {
            Expr::Feature(name) => features.contains(name),
            Expr::All(parts) => parts.iter().all(|p| p.holds(features)),
            Expr::Any(parts) => parts.iter().any(|p| p.holds(features)),
            Expr::Count(..) => true,
        }
    }

    /// Moves the counts out of it that are joined by `&`; whether others are left.
    fn take_counts(&mut self, counts: &mut Vec<(Expr, u32)>) -> bool {
        match self {
            Expr::Feature(_) => false,
            Expr::All(parts) => {
                let left: Vec<bool> = parts.iter_mut().map(|p| p.take_counts(counts)).collect();
                left.contains(&true)
            }
            Expr::Any(parts) => {
                parts.iter_mut().any(|p| p.take_counts(&mut Vec::new()))
                    || parts.iter().any(|p| matches!(p, Expr::Count(..)))
            }
            Expr::Count(inner, count) => {
                let mut deeper = Vec::new();
                let nested = inner.take_counts(&mut deeper) || !deeper.is_empty();
                counts.push(((**inner).clone(), *count));
                nested
            }
        }
    }
}

/// Takes an expression apart into alternatives: all nodes of a job must satisfy the same one. Without `[a|b]`
/// there is one alternative. One that is written again is there once. `None` if it is not understood.
pub fn alternatives(text: &str) -> Option<Vec<Alternative>> {
    let mut parser = Parser {
        text,
        at: 0,
        depth: 0,
        features: 0,
    };
    let out = parser.any()?;
    if parser.at != text.len() {
        return None;
    }
    let apart = |mut each: Expr| {
        let mut counts = Vec::new();
        let left = each.take_counts(&mut counts);
        let counts = sum_of_equal(counts);
        (!left).then_some(Alternative { each, counts })
    };
    let all: Vec<Alternative> = out.into_iter().map(apart).collect::<Option<_>>()?;
    let mut seen = HashSet::new();
    let is_first: Vec<bool> = all.iter().map(|one| seen.insert(one)).collect();
    let kept = all.iter().zip(is_first).filter(|(_, first)| *first);
    Some(kept.map(|(one, _)| one.clone()).collect())
}

/// Counts of equal kinds added up: since each node is counted once, `a*1&a*2` are three.
pub fn sum_of_equal<K: Clone + Eq + Hash>(counts: Vec<(K, u32)>) -> Vec<(K, u32)> {
    let mut places: HashMap<K, usize> = HashMap::new();
    let mut sums: Vec<(K, u32)> = Vec::new();
    for (kind, count) in counts {
        match places.get(&kind) {
            Some(place) => sums[*place].1 = sums[*place].1.saturating_add(count),
            None => {
                places.insert(kind.clone(), sums.len());
                sums.push((kind, count));
            }
        }
    }
    sums
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: u32,
    features: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<char> {
        self.text.get(self.at..)?.chars().next()
    }

    fn take(&mut self, c: char) -> Option<()> {
        (self.peek()? == c).then(|| self.at += c.len_utf8())
    }

    fn any(&mut self) -> Option<Vec<Expr>> {
        self.joined(&['|'], Parser::all, Expr::Any)
    }

    fn all(&mut self) -> Option<Vec<Expr>> {
        self.joined(&['&', ','], Parser::atom, Expr::All)
    }

    fn joined(
        &mut self,
        signs: &[char],
        part: fn(&mut Self) -> Option<Vec<Expr>>,
        join: fn(Vec<Expr>) -> Expr,
    ) -> Option<Vec<Expr>> {
        let mut parts = vec![part(self)?];
        while self.peek().is_some_and(|c| signs.contains(&c)) {
            self.at += 1;
            parts.push(part(self)?);
        }
        if parts.len() == 1 {
            return parts.pop();
        }
        product(&parts, join)
    }

    fn atom(&mut self) -> Option<Vec<Expr>> {
        let parts = self.bare_atom()?;
        if self.take('*').is_none() {
            return Some(parts);
        }
        let rest = &self.text[self.at..];
        let digits = rest.find(|c: char| !c.is_ascii_digit());
        let end = digits.unwrap_or(rest.len());
        let count: u32 = rest[..end].parse().ok().filter(|n| *n > 0)?;
        self.at += end;
        let counted = |part| Expr::Count(Box::new(part), count);
        Some(parts.into_iter().map(counted).collect())
    }

    fn bare_atom(&mut self) -> Option<Vec<Expr>> {
        match self.peek()? {
            '(' | '[' => self.group(),
            _ => {
                let rest = &self.text[self.at..];
                let end = rest
                    .find(['&', '|', '(', ')', '[', ']', ',', '*'])
                    .unwrap_or(rest.len());
                let name = rest[..end].trim();
                self.features += 1;
                if name.is_empty() || self.features > FEATURES_MAX {
                    return None;
                }
                self.at += end;
                Some(vec![Expr::Feature(name.to_string())])
            }
        }
    }

    fn group(&mut self) -> Option<Vec<Expr>> {
        // Depth is bounded because the text comes from users and the parser recurses.
        self.depth += 1;
        if self.depth > 32 {
            return None;
        }
        let open = self.peek()?;
        self.at += 1;
        let out = if open == '(' {
            let inner = self.any()?;
            self.take(')')?;
            inner
        } else {
            let mut out = self.all()?;
            while self.peek() == Some('|') {
                self.at += 1;
                out.extend(self.all()?);
            }
            self.take(']')?;
            out
        };
        self.depth -= 1;
        (out.len() <= ALTERNATIVES_MAX).then_some(out)
    }
}

/// One joined expression for every choice of an alternative from each part.
fn product(parts: &[Vec<Expr>], join: fn(Vec<Expr>) -> Expr) -> Option<Vec<Expr>> {
    let mut choices: Vec<Vec<Expr>> = vec![Vec::new()];
    for part in parts {
        if let [only] = part.as_slice() {
            choices
                .iter_mut()
                .for_each(|choice| choice.push(only.clone()));
            continue;
        }
        if choices.len() * part.len() > ALTERNATIVES_MAX {
            return None;
        }
        let with = |choice: &Vec<Expr>, next: &Expr| {
            let choice = choice.iter().chain([next]);
            choice.cloned().collect::<Vec<_>>()
        };
        choices = choices
            .iter()
            .flat_map(|choice| part.iter().map(move |next| with(choice, next)))
            .collect();
    }
    Some(choices.into_iter().map(join).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ok(text: &str, features: &str) -> Vec<bool> {
        let features: Vec<String> = features.split(',').map(str::to_string).collect();
        alternatives(text)
            .expect("understood")
            .iter()
            .map(|a| a.each.holds(&features))
            .collect()
    }

    #[test]
    fn counts_are_of_nodes() {
        let counted = |text: &str| -> Vec<(usize, Vec<u32>)> {
            let all = alternatives(text).expect("understood");
            let numbers = |a: &Alternative| a.counts.iter().map(|(_, n)| *n).collect();
            all.iter().map(|a| (a.counts.len(), numbers(a))).collect()
        };
        assert_eq!(counted("a*2"), [(1, vec![2])]);
        assert_eq!(counted("[a*2&b*3]"), [(2, vec![2, 3])]);
        assert_eq!(counted("[(a&c)*4&b*1]&d"), [(2, vec![4, 1])]);
        assert_eq!(counted("[a*2|b*3]"), [(1, vec![2]), (1, vec![3])]);
        assert_eq!(ok("a*2&b", "b"), [true]);
        assert_eq!(ok("a*2&b", "a"), [false]);
    }

    #[test]
    fn what_is_written_again_is_there_once() {
        let text = format!("[{}]&{}", ["f"; 64].join("|"), ["g*1"; 40].join("&"));
        let all = alternatives(&text).expect("understood");
        let [one] = all.as_slice() else {
            panic!("{} alternatives", all.len());
        };
        let [(kind, count)] = one.counts.as_slice() else {
            panic!("{} counts", one.counts.len());
        };
        assert_eq!((kind, *count), (&Expr::Feature("g".into()), 40));
    }

    #[test]
    fn expressions_mean_what_sbatch_says() {
        assert_eq!(ok("a", "a,b"), [true]);
        assert_eq!(ok("a&b", "a"), [false]);
        assert_eq!(ok("a|b", "b"), [true]);
        assert_eq!(ok("(a|b)&c", "b,c"), [true]);
        assert_eq!(ok("(a|b)&c", "b"), [false]);
        assert_eq!(ok("[a|b]", "b"), [false, true]);
        assert_eq!(ok("[a|b]&c", "a,c"), [true, false]);
        assert_eq!(ok("a,b", "a,b"), [true]);
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for text in [
            "", "a&", "a*", "a*0", "a*2|b", "(a*2)*3", "(a", "a)", "[a", "&a", "a||b",
        ] {
            assert_eq!(alternatives(text), None, "{text}");
        }
        assert_eq!(alternatives(&"(".repeat(100_000)), None);
    }

    /// Work that grows with the square of a user's text delays all users.
    #[test]
    fn an_expression_has_a_bounded_number_of_features() {
        let joined = |n: usize, sign: &str| vec!["a"; n].join(sign);
        for sign in ["&", "|", ","] {
            assert!(alternatives(&joined(FEATURES_MAX, sign)).is_some());
            assert_eq!(alternatives(&joined(FEATURES_MAX + 1, sign)), None);
        }
        let names: Vec<String> = (0..64).map(|n| format!("f{n}")).collect();
        let groups = format!("[{}]&{}", names.join("|"), joined(192, "&"));
        assert_eq!(alternatives(&groups).map(|all| all.len()), Some(64));
    }
}
