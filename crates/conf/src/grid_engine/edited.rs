//! Changes of the text of sge.conf, which qconf makes: a line at a time, with comments and all else as it is.

/// Whether a line is that of a keyword and a name; of the keyword alone if the name is empty.
fn is_line_of(line: &str, keyword: &str, name: &str) -> bool {
    let line = line.split('#').next().unwrap_or_default();
    let mut words = line.split_whitespace();
    words.next() == Some(keyword) && (name.is_empty() || words.next() == Some(name))
}

/// The text with another value under a keyword and a name: in place of the line that there is, at the end if there is none. Without
/// a value the line is taken out.
pub fn with_line(text: &str, keyword: &str, name: &str, value: Option<&str>) -> String {
    let new = value.map(|value| {
        let words = [keyword, name, value];
        let words = words.into_iter().filter(|word| !word.is_empty());
        words.collect::<Vec<_>>().join(" ")
    });
    let (mut out, mut is_written) = (String::new(), false);
    for line in text.lines() {
        match (is_line_of(line, keyword, name), &new) {
            (false, _) => out += line,
            (true, Some(new)) if !is_written => {
                out += new;
                is_written = true;
            }
            (true, _) => continue,
        }
        out.push('\n');
    }
    if let Some(new) = new.filter(|_| !is_written) {
        out += &new;
        out.push('\n');
    }
    out
}

/// The text without the section of a job class, and with another one in its place if there is one.
pub fn with_class(text: &str, name: &str, section: Option<&str>) -> String {
    let (mut out, mut is_own, mut is_written) = (String::new(), false, false);
    let section = section.map(|section| section.trim_end().to_owned() + "\n");
    for line in text.lines() {
        if is_line_of(line, "jcname", "") {
            is_own = is_line_of(line, "jcname", name);
            if let Some(section) = section.as_ref().filter(|_| is_own && !is_written) {
                out += section;
                is_written = true;
            }
        }
        if !is_own {
            out += line;
            out.push('\n');
        }
    }
    if let Some(section) = section.filter(|_| !is_written) {
        out += &section;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_takes_the_place_of_another() {
        let text = "# site\npe smp $pe_slots  # one host\n\npe mpi $fill_up";
        for (keyword, name, value, want) in [
            (
                "pe",
                "mpi",
                Some("8"),
                "# site\npe smp $pe_slots  # one host\n\npe mpi 8\n",
            ),
            ("pe", "smp", None, "# site\n\npe mpi $fill_up\n"),
            (
                "pe",
                "x",
                Some("1"),
                "# site\npe smp $pe_slots  # one host\n\npe mpi $fill_up\npe x 1\n",
            ),
            (
                "pe",
                "x",
                None,
                "# site\npe smp $pe_slots  # one host\n\npe mpi $fill_up\n",
            ),
        ] {
            assert_eq!(with_line(text, keyword, name, value), want, "{name}");
        }
        assert_eq!(
            with_line("jsv_url none\n", "jsv_url", "", Some("/a")),
            "jsv_url /a\n"
        );
    }

    #[test]
    fn a_class_takes_the_place_of_another() {
        let text = "# classes\njcname a\nN x\njcname b\nN y\n";
        assert_eq!(with_class(text, "a", None), "# classes\njcname b\nN y\n");
        assert_eq!(
            with_class(text, "a", Some("jcname a\nN z\n\n")),
            "# classes\njcname a\nN z\njcname b\nN y\n"
        );
        assert_eq!(
            with_class(text, "c", Some("jcname c")),
            "# classes\njcname a\nN x\njcname b\nN y\njcname c\n"
        );
    }
}
