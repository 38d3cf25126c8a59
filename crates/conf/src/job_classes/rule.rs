//! A class's rule for an attribute: a value or none, and the rights of users to change it.

use super::attributes::{Attribute, Kind};

/// The word for no value.
const UNSPECIFIED: &str = "UNSPECIFIED";
/// The rule of an attribute that a class does not mention.
pub const FREE: &str = "{+}UNSPECIFIED";
/// Elements of a list.
const ELEMENTS_MAX: usize = 100;

/// Rights of users to change a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Put another in its place: `{~}`, `{+}`.
    pub change: bool,
    /// Take it away: `{-}`, `{+}`.
    pub remove: bool,
}

impl Access {
    fn of(letter: &str) -> Option<Access> {
        let (change, remove) = match letter {
            "" => (false, false),
            "~" => (true, false),
            "-" => (false, true),
            "+" => (true, true),
            _ => return None,
        };
        Some(Access { change, remove })
    }

    fn letter(self) -> &'static str {
        match (self.change, self.remove) {
            (false, false) => "",
            (true, false) => "~",
            (false, true) => "-",
            (true, true) => "+",
        }
    }

    fn mark(self) -> String {
        match self.letter() {
            "" => String::new(),
            letter => format!("{{{letter}}}"),
        }
    }
}

/// An element of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element {
    /// Rights of users to change it.
    pub access: Access,
    /// Its name.
    pub key: String,
    /// Its value.
    pub value: Option<String>,
}

impl Element {
    /// `NAME=VALUE`.
    pub fn text(&self) -> String {
        match &self.value {
            Some(value) => format!("{}={value}", self.key),
            None => self.key.clone(),
        }
    }
}

/// A rule for an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttributeRule {
    /// No value.
    Unspecified(Access),
    /// One value.
    Value(Access, String),
    /// A list.
    List {
        /// Whether users may add elements.
        add: bool,
        /// Rights of users to change the list, and elements without rights of their own.
        access: Access,
        /// The elements.
        elements: Vec<Element>,
    },
}

impl AttributeRule {
    /// Whether it is as if nothing were said.
    pub fn is_free(&self) -> bool {
        matches!(self, AttributeRule::Unspecified(access) if access.change)
    }

    /// Reads what follows the name of an attribute.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(attribute: &Attribute, text: &str) -> Result<AttributeRule, String> {
        let (mark, rest) = mark(text)?;
        let (letter, add) = match mark.strip_suffix("...") {
            Some(letter) => (letter, true),
            None => (mark, false),
        };
        let access = Access::of(letter);
        let access = access.ok_or_else(|| {
            format!("'{{{mark}}}' is not a valid access: it is {{~}}, {{-}} or {{+}}")
        })?;
        if rest.eq_ignore_ascii_case(UNSPECIFIED) {
            // A list without elements can only be added to.
            let access = if add {
                Access {
                    change: true,
                    remove: true,
                }
            } else {
                access
            };
            return Ok(AttributeRule::Unspecified(access));
        }
        if rest.is_empty() {
            return Err(format!("{} has no value", attribute.name));
        }
        match attribute.kind {
            Kind::Absent(why) => Err(format!("{} cannot have a value: {why}", attribute.name)),
            Kind::Unspecified => Err(format!("{} cannot have a value in a class", attribute.name)),
            Kind::List => AttributeRule::list(access, add, rest),
            _ if add => Err(format!(
                "{} is not a list; nothing can be added to it",
                attribute.name
            )),
            Kind::Flag => match rest.to_ascii_lowercase().as_str() {
                "y" | "yes" | "true" | "1" => Ok(AttributeRule::Value(access, "y".to_owned())),
                "n" | "no" | "false" | "0" => Ok(AttributeRule::Value(access, "n".to_owned())),
                _ => Err(format!("'{rest:.80}' is not one of y and n")),
            },
            Kind::Number if rest.parse::<i64>().is_err() => {
                Err(format!("'{rest:.80}' is not a number"))
            }
            Kind::Number | Kind::Text => Ok(AttributeRule::Value(access, rest.to_owned())),
        }
    }

    fn list(access: Access, add: bool, rest: &str) -> Result<AttributeRule, String> {
        let mut elements: Vec<Element> = Vec::new();
        for (number, word) in rest.split(',').enumerate() {
            let (own_mark, word) = mark(word.trim())?;
            // A mark before a list that nothing may be added to is its first element's.
            let own = match own_mark {
                "" if number == 0 || add => Some(access),
                letter => Access::of(letter),
            };
            let own = own.ok_or_else(|| {
                format!("'{{{own_mark}}}' is not a valid access: it is {{~}}, {{-}} or {{+}}")
            })?;
            let (key, value) = match word.split_once('=') {
                Some((key, value)) => (key, Some(value.to_owned())),
                None => (word, None),
            };
            if key.is_empty() || key.contains(char::is_whitespace) {
                return Err(format!("'{word:.80}' is not of the form NAME=VALUE"));
            }
            if elements.iter().any(|own| own.key == key) {
                return Err(format!("'{key:.80}' is in the list twice"));
            }
            elements.push(Element {
                access: own,
                key: key.to_owned(),
                value,
            });
        }
        let access = if add { access } else { Access::default() };
        match elements.len() <= ELEMENTS_MAX {
            true => Ok(AttributeRule::List {
                add,
                access,
                elements,
            }),
            false => Err(format!("the list has more than {ELEMENTS_MAX} elements")),
        }
    }

    /// As it is written.
    pub fn text(&self) -> String {
        match self {
            AttributeRule::Unspecified(access) => access.mark() + UNSPECIFIED,
            AttributeRule::Value(access, value) => access.mark() + value,
            AttributeRule::List {
                add,
                access,
                elements,
            } => {
                let before = if *add {
                    format!("{{{}...}}", access.letter())
                } else {
                    String::new()
                };
                let own = |element: &Element| {
                    let mark = if *add && element.access == *access {
                        String::new()
                    } else {
                        element.access.mark()
                    };
                    mark + &element.text()
                };
                before + &elements.iter().map(own).collect::<Vec<_>>().join(",")
            }
        }
    }
}

/// The access before a value, and the value.
fn mark(text: &str) -> Result<(&str, &str), String> {
    match text.strip_prefix('{') {
        None => Ok(("", text)),
        Some(rest) => match rest.split_once('}') {
            Some((mark, rest)) => Ok((mark, rest.trim())),
            None => Err(format!("'{text:.80}' has a {{ without }}")),
        },
    }
}

/// A class's rules for an attribute, in each variant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Values {
    /// The rule without the name of a variant.
    pub usual: Option<AttributeRule>,
    /// `[VARIANT=VALUE]`.
    pub of_variants: Vec<(String, AttributeRule)>,
}

impl Values {
    /// Reads a whole line of an attribute: a value, and others in brackets for variants.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(attribute: &Attribute, text: &str) -> Result<Values, String> {
        let mut usual = String::new();
        let mut of_variants: Vec<(String, AttributeRule)> = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('[') {
            usual.push_str(before);
            let (inside, after) = after
                .split_once(']')
                .ok_or_else(|| format!("'{text:.80}' has a [ without ]"))?;
            let (variant, value) = inside
                .split_once('=')
                .ok_or_else(|| format!("'[{inside:.80}]' is not of the form [VARIANT=VALUE]"))?;
            let variant = variant.trim().to_owned();
            if of_variants.iter().any(|(own, _)| *own == variant) {
                return Err(format!("variant '{variant:.80}' has two values"));
            }
            of_variants.push((variant, AttributeRule::parse(attribute, value.trim())?));
            // The rest is one list.
            rest = after.trim_start().trim_start_matches(',');
        }
        usual.push_str(rest);
        let usual = usual.trim_matches(|c: char| c == ',' || c.is_whitespace());
        let usual = match usual {
            "" => None,
            usual => Some(AttributeRule::parse(attribute, usual)?),
        };
        Ok(Values { usual, of_variants })
    }

    /// The rule for a variant.
    pub fn of(&self, variant: &str) -> Option<&AttributeRule> {
        let own = self.of_variants.iter().find(|(name, _)| name == variant);
        own.map(|(_, rule)| rule).or(self.usual.as_ref())
    }

    /// As it is written.
    pub fn text(&self) -> String {
        let usual = self.usual.iter().map(AttributeRule::text);
        let others = self.of_variants.iter();
        let others = others.map(|(name, rule)| format!("[{name}={}]", rule.text()));
        usual.chain(others).collect::<Vec<_>>().join(",")
    }
}
