//! `--constraint`: expressions over node features. Counts (`a*2`) are refused: they are not implemented.

/// Most alternatives that `[a|b]` groups of one expression may multiply to.
const ALTERNATIVES_MAX: usize = 64;

/// An expression without `[..]` groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expr {
    Feature(String),
    All(Vec<Expr>),
    Any(Vec<Expr>),
}

impl Expr {
    /// Whether a node with these features satisfies it.
    pub(crate) fn holds(&self, features: &[String]) -> bool {
        match self {
            Expr::Feature(name) => features.contains(name),
            Expr::All(parts) => parts.iter().all(|p| p.holds(features)),
            Expr::Any(parts) => parts.iter().any(|p| p.holds(features)),
        }
    }
}

/// Takes an expression apart into alternatives: all nodes of a job must satisfy the same one. Without `[a|b]`
/// there is one alternative. `None` if it is not understood.
pub(crate) fn alternatives(text: &str) -> Option<Vec<Expr>> {
    let mut parser = Parser {
        text,
        at: 0,
        depth: 0,
    };
    let out = parser.any()?;
    (parser.at == text.len()).then_some(out)
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: u32,
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
        match self.peek()? {
            '(' | '[' => self.group(),
            _ => {
                let rest = &self.text[self.at..];
                let end = rest
                    .find(['&', '|', '(', ')', '[', ']', ',', '*'])
                    .unwrap_or(rest.len());
                let name = rest[..end].trim();
                if name.is_empty() {
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
        if choices.len() * part.len() > ALTERNATIVES_MAX {
            return None;
        }
        choices = choices
            .iter()
            .flat_map(|c| {
                part.iter()
                    .map(move |e| c.iter().cloned().chain([e.clone()]).collect::<Vec<_>>())
            })
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
            .map(|e| e.holds(&features))
            .collect()
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
        for text in ["", "a&", "a*2", "[a*2&b*1]", "(a", "a)", "[a", "&a", "a||b"] {
            assert_eq!(alternatives(text), None, "{text}");
        }
        assert_eq!(alternatives(&"(".repeat(100_000)), None);
    }
}
