//! `MPI_Comm_spawn` by PMI: the spawn request of a task in either protocol, and the variables and
//! keys of the new step.

use super::protocol::{Dialect, Request};
use crate::srun::{PUTS, VARIABLE};
use crate::upcall::App;

/// Processes that a task asks to spawn.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SpawnCommand {
    /// The programs.
    pub(crate) apps: Vec<App>,
    /// Initial keys of the new step.
    pub(crate) puts: Vec<(String, String)>,
    /// More of the request follows: PMI-1 sends one request per program.
    pub(crate) unfinished: bool,
}

impl SpawnCommand {
    /// Adds the contents of a request.
    pub(crate) fn add(&mut self, request: &Request, dialect: Dialect) {
        match dialect {
            Dialect::One => self.add_one(request),
            Dialect::Two => self.add_two(request),
        }
    }

    fn add_one(&mut self, request: &Request) {
        let number = |key: &str| request.text(key).parse::<usize>().unwrap_or(0);
        let mut app = App {
            argv: vec![request.text("execname").to_owned()],
            tasks: request.text("nprocs").parse().unwrap_or(0),
            ..App::default()
        };
        let args = (1..=number("argcnt")).map(|i| request.text(&format!("arg{i}")).to_owned());
        app.argv.extend(args);
        for i in 0..number("info_num") {
            let value = request.text(&format!("info_val_{i}"));
            inform(&mut app, request.text(&format!("info_key_{i}")), value);
        }
        for i in 0..number("preput_num") {
            let key = request.text(&format!("preput_key_{i}")).to_owned();
            let value = request.text(&format!("preput_val_{i}")).to_owned();
            self.puts.push((key, value));
        }
        self.apps.push(app);
        self.unfinished = number("spawnssofar") < number("totspawns");
    }

    /// PMI-2 sends all programs in one request; each program starts with its name.
    fn add_two(&mut self, request: &Request) {
        let (mut put_key, mut info_key) = (String::new(), String::new());
        for (key, value) in &request.pairs {
            let numbered = |word: &str| {
                key.strip_prefix(word)
                    .is_some_and(|n| n.parse::<u32>().is_ok())
            };
            if key == "subcmd" {
                self.apps.push(App {
                    argv: vec![value.clone()],
                    ..App::default()
                });
            } else if numbered("ppkey") {
                put_key.clone_from(value);
            } else if numbered("ppval") {
                self.puts
                    .push((std::mem::take(&mut put_key), value.clone()));
            } else if numbered("infokey") {
                info_key.clone_from(value);
            }
            let Some(app) = self.apps.last_mut() else {
                continue;
            };
            if key == "maxprocs" {
                app.tasks = value.parse().unwrap_or(0);
            } else if numbered("argv") {
                app.argv.push(value.clone());
            } else if numbered("infoval") {
                inform(app, &std::mem::take(&mut info_key), value);
            }
        }
    }

    /// Whether the request names at least one program.
    pub(crate) fn is_whole(&self) -> bool {
        let whole =
            |app: &App| app.tasks > 0 && app.argv.first().is_some_and(|name| !name.is_empty());
        !self.apps.is_empty() && self.apps.iter().all(whole)
    }

    /// Environment variables of the new step.
    pub(crate) fn variables(&self, host: &str, ticket: u64) -> [(&'static str, String); 2] {
        let sizes = self.apps.iter().map(|a| format!(" {}", a.tasks));
        let puts = self
            .puts
            .iter()
            .map(|(key, value)| format!("{key}={value}\n"));
        [
            (
                VARIABLE,
                format!("{host} {ticket}{}", sizes.collect::<String>()),
            ),
            (PUTS, puts.collect()),
        ]
    }
}

/// A key of `MPI_Info` that the launcher uses.
fn inform(app: &mut App, key: &str, value: &str) {
    match key {
        "host" | "hosts" => app.hosts = Some(value.to_owned()),
        "wdir" => app.work_dir = Some(value.to_owned()),
        _ => {}
    }
}

/// The task that spawned this step, from the environment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Origin {
    /// Address at which the task's host listens.
    pub(crate) host: String,
    pub(crate) ticket: u64,
    /// Number of tasks of each program.
    sizes: Vec<u32>,
    /// The keys.
    pub(crate) puts: Vec<(String, String)>,
}

impl Origin {
    pub(crate) fn read(env: &[(String, String)]) -> Option<Origin> {
        let value = |wanted: &str| env.iter().find(|(name, _)| name == wanted).map(|(_, v)| v);
        let mut words = value(VARIABLE)?.split(' ');
        let puts = value(PUTS)?.lines().filter_map(|l| l.split_once('='));
        Some(Origin {
            host: words.next()?.to_owned(),
            ticket: words.next()?.parse().ok()?,
            sizes: words.filter_map(|w| w.parse().ok()).collect(),
            puts: puts.map(|(k, v)| (k.to_owned(), v.to_owned())).collect(),
        })
    }

    /// Program number of a rank.
    pub(crate) fn app_of(&self, rank: u32) -> u32 {
        let mut end = 0;
        let before = self.sizes.iter().take_while(|size| {
            end += **size;
            end <= rank
        });
        u32::try_from(before.count()).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::protocol::TaskConnection;
    use super::*;

    fn request(dialect: Dialect, text: &str) -> Request {
        let mut talk = TaskConnection::default();
        talk.speak(dialect);
        talk.push(text.as_bytes());
        talk.take().unwrap().unwrap()
    }

    #[test]
    fn both_protocols_ask_for_the_same() {
        let mut one = SpawnCommand::default();
        let first = "mcmd=spawn\nnprocs=2\nexecname=./a\ntotspawns=2\nspawnssofar=1\nargcnt=1\narg1=x y\n\
                     preput_num=1\npreput_key_0=PORT\npreput_val_0=tag=3\ninfo_num=1\ninfo_key_0=wdir\n\
                     info_val_0=/tmp\nendcmd\n";
        one.add(&request(Dialect::One, first), Dialect::One);
        assert!(one.unfinished);
        let second = "mcmd=spawn\nnprocs=1\nexecname=b\ntotspawns=2\nspawnssofar=2\nargcnt=0\npreput_num=0\n\
                      info_num=0\nendcmd\n";
        one.add(&request(Dialect::One, second), Dialect::One);
        assert!(!one.unfinished && one.is_whole());
        assert_eq!(one.apps[0].argv, ["./a", "x y"]);
        assert_eq!(one.apps[0].work_dir.as_deref(), Some("/tmp"));
        let body = "cmd=spawn;ncmds=2;preputcount=1;ppkey0=PORT;ppval0=tag=3;subcmd=./a;maxprocs=2;argc=1;\
                    argv0=x y;infokeycount=1;infokey0=wdir;infoval0=/tmp;subcmd=b;maxprocs=1;argc=0;infokeycount=0;";
        let mut two = SpawnCommand::default();
        two.add(
            &request(Dialect::Two, &format!("{:>6}{body}", body.len())),
            Dialect::Two,
        );
        assert_eq!(one, two);
        let env = one
            .variables("127.0.0.1:5", 7)
            .map(|(name, value)| (name.to_owned(), value));
        let origin = Origin::read(&env).unwrap();
        assert_eq!((origin.host.as_str(), origin.ticket), ("127.0.0.1:5", 7));
        assert_eq!(origin.puts, [("PORT".to_owned(), "tag=3".to_owned())]);
        assert_eq!([0, 1, 2].map(|rank| origin.app_of(rank)), [0, 0, 1]);
    }
}
