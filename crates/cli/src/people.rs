//! Users and groups of this machine. A command that is linked statically knows the files of /etc alone; whom only the
//! machine's name services know (LDAP, sssd), `getent` looks up for it.

use nix::unistd::{Gid, Group, Uid, User};
use std::sync::OnceLock;

/// The caller, once found. A submission needs its user several times, and each look-up may ask another host, or start `getent`.
static CALLER: OnceLock<User> = OnceLock::new();

/// The user with that number.
pub(crate) fn user_of_uid(uid: u32) -> Option<User> {
    if let Some(known) = CALLER.get().filter(|known| known.uid.as_raw() == uid) {
        return Some(known.clone());
    }
    let found = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    let found = found.or_else(|| asked::user(&uid.to_string()))?;
    if found.uid == nix::unistd::getuid() {
        let _ = CALLER.set(found.clone());
    }
    Some(found)
}

/// The user with that name.
pub(crate) fn user_named(name: &str) -> Option<User> {
    let found = User::from_name(name).ok().flatten();
    found.or_else(|| asked::user(name))
}

/// The group with that number.
pub(crate) fn group_of_gid(gid: u32) -> Option<Group> {
    let found = Group::from_gid(Gid::from_raw(gid)).ok().flatten();
    found.or_else(|| asked::group(&gid.to_string()))
}

/// The group with that name.
pub(crate) fn group_named(name: &str) -> Option<Group> {
    let found = Group::from_name(name).ok().flatten();
    found.or_else(|| asked::group(name))
}

/// A line of passwd(5).
#[cfg(any(target_env = "musl", test))]
fn user_from(line: &str) -> Option<User> {
    let mut fields = line.trim_end().split(':');
    let mut text = || std::ffi::CString::new(fields.next()?).ok();
    let (name, passwd, uid, gid, gecos) = (text()?, text()?, text()?, text()?, text()?);
    let number = |field: std::ffi::CString| field.to_str().ok()?.parse::<u32>().ok();
    Some(User {
        name: name.into_string().ok()?,
        passwd,
        uid: Uid::from_raw(number(uid)?),
        gid: Gid::from_raw(number(gid)?),
        gecos,
        dir: text()?.into_string().ok()?.into(),
        shell: text()?.into_string().ok()?.into(),
    })
}

/// A line of group(5).
#[cfg(any(target_env = "musl", test))]
fn group_from(line: &str) -> Option<Group> {
    let fields: Vec<&str> = line.trim_end().split(':').collect();
    let [name, passwd, gid, members] = fields[..] else {
        return None;
    };
    let members = members.split(',').filter(|m| !m.is_empty());
    Some(Group {
        name: name.to_owned(),
        passwd: std::ffi::CString::new(passwd).ok()?,
        gid: Gid::from_raw(gid.parse().ok()?),
        mem: members.map(str::to_owned).collect(),
    })
}

/// With the C library that knows the name services, there is nobody else to ask.
#[cfg(not(target_env = "musl"))]
mod asked {
    use nix::unistd::{Group, User};

    pub(super) fn user(_: &str) -> Option<User> {
        None
    }

    pub(super) fn group(_: &str) -> Option<Group> {
        None
    }
}

#[cfg(target_env = "musl")]
mod asked {
    use nix::unistd::{Group, User};
    use std::process::{Command, Stdio};

    pub(super) fn user(key: &str) -> Option<User> {
        super::user_from(&line("passwd", key)?)
    }

    pub(super) fn group(key: &str) -> Option<Group> {
        super::group_from(&line("group", key)?)
    }

    /// Output of `getent` (of the C library's own package) for a key that it finds.
    fn line(database: &str, key: &str) -> Option<String> {
        let mut getent = Command::new("getent");
        getent.args([database, key]).stdin(Stdio::null());
        let out = getent.stderr(Stdio::null()).output().ok()?;
        out.status.success().then_some(())?;
        String::from_utf8(out.stdout).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Six times for each qsub the files or services of users were asked.
    #[test]
    fn the_caller_is_looked_up_once() {
        let own = nix::unistd::getuid().as_raw();
        let found = user_of_uid(own);
        assert_eq!(CALLER.get(), found.as_ref());
        assert_eq!(user_of_uid(own), found);
        let other = user_of_uid(own + 1);
        assert!(other.is_none_or(|other| Some(other.uid) != found.map(|own| own.uid)));
    }

    #[test]
    fn a_user_reads_as_getent_prints_it() {
        let user = user_from("ada:x:1815:100:Ada,,,:/home/ada:/bin/bash\n").unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_raw()), ("ada", 1815));
        assert_eq!(user.gid.as_raw(), 100);
        assert_eq!(user.dir, std::path::Path::new("/home/ada"));
        assert_eq!(user.shell, std::path::Path::new("/bin/bash"));
        assert!(user_from("ada:x:many:100:::").is_none());
        assert!(user_from("").is_none());
    }

    #[test]
    fn a_group_reads_as_getent_prints_it() {
        let group = group_from("staff:x:50:ada,bob\n").unwrap();
        assert_eq!((group.name.as_str(), group.gid.as_raw()), ("staff", 50));
        assert_eq!(group.mem, ["ada", "bob"]);
        assert!(group_from("staff:x").is_none());
    }

    #[test]
    fn everybody_knows_root() {
        assert_eq!(user_named("root").unwrap().uid.as_raw(), 0);
        assert_eq!(user_of_uid(0).unwrap().name, "root");
        assert_eq!(group_of_gid(0).unwrap().name, "root");
        assert_eq!(group_named("root").unwrap().gid.as_raw(), 0);
    }
}
