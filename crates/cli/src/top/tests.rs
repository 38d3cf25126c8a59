//! What is drawn for what has come, and what keys ask for.

use super::gather::{JobLine, Lists, NodeLine, job_line, node_line};
use super::page::Tab;
use super::*;
use crate::listing::fixture;
use crate::listing::job::JobRow;
use crate::listing::node::NodeView;
use muster_model::ids::JobId;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

fn job(id: u64, name: &str) -> JobLine {
    JobLine {
        id: JobId(id),
        name: id.to_string(),
        partition: "batch".into(),
        title: name.into(),
        user: "ada".into(),
        state: "R",
        ran_s: 59,
        runs: true,
        cpus: 4,
        place: "n[1-2]".into(),
        is_own: true,
        ..JobLine::default()
    }
}

fn pending(id: u64, user: &str) -> JobLine {
    JobLine {
        user: user.into(),
        state: "PD",
        is_pending: true,
        ran_s: 0,
        runs: false,
        place: "(Priority)".into(),
        is_own: user == "ada",
        ..job(id, "waits")
    }
}

fn node(name: &str, used: u32) -> NodeLine {
    NodeLine {
        name: name.into(),
        state: if used == 4 { "allocated" } else { "idle" }.into(),
        used_cpus: used,
        cpus: 4,
        load: "1.50".into(),
        free_mib: Some(2048),
        mib: 4096,
        jobs: 1,
        ..NodeLine::default()
    }
}

fn lists() -> Lists {
    let down = NodeLine {
        state: "down*".into(),
        is_wrong: true,
        reason: "disk".into(),
        ..node("n3", 0)
    };
    Lists {
        cluster: "c".into(),
        jobs: vec![job(7, "first"), pending(9, "bob"), pending(8, "ada")],
        nodes: vec![node("n1", 4), node("n2", 0), down],
        running: 1,
        pending: 2,
        ..Lists::default()
    }
}

fn page() -> Page {
    let mut page = Page::new("c");
    page.take(Update::Lists(Box::new(lists())));
    page.take(Update::Events(vec![
        "12:00:00 job 7 (ada, first) started: RUNNING".into(),
    ]));
    page
}

/// What the terminal shows.
fn drawn(page: &mut Page, (width, height): (u16, u16)) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| view::draw(frame, page)).unwrap();
    let buffer = terminal.backend().buffer();
    let row = |y| {
        let cells = (0..width).map(|x| buffer[(x, y)].symbol());
        cells.collect::<String>().trim_end().to_owned()
    };
    (0..height).map(row).collect::<Vec<_>>().join("\n")
}

fn press(page: &mut Page, code: KeyCode) -> Option<Deed> {
    page.press(KeyEvent::new(code, KeyModifiers::NONE))
}

#[test]
fn every_list_fits_a_terminal_of_80_columns_and_24_lines() {
    let mut page = page();
    for second in 0..20 {
        page.lists.pending = second % 5;
        page.tick();
    }
    page.lists.pending = 2;
    for (key, name) in [
        ('1', "queue"),
        ('2', "own"),
        ('3', "nodes"),
        ('4', "events"),
    ] {
        press(&mut page, KeyCode::Char(key));
        insta::assert_snapshot!(name, drawn(&mut page, (80, 24)));
    }
    page.show(PageOutput::Text {
        title: "Why job 8 waits".into(),
        text: "Job 8 waits: Priority\n  others are ahead\n".into(),
        log_of: None,
    });
    insta::assert_snapshot!("why", drawn(&mut page, (80, 24)));
    // Nothing is drawn outside, however small it is.
    for size in [(1, 1), (20, 5), (79, 2), (300, 100)] {
        drawn(&mut page, size);
    }
    drawn(&mut Page::new("c"), (80, 24));
}

#[test]
fn texts_of_others_command_no_terminal() {
    let evil = "x\u{1b}[2J\u{9b}5n\u{202e}y";
    let mut waiting = fixture::job(1, evil);
    fixture::ask(&mut waiting, |spec| spec.owner.user = evil.into());
    waiting.partition = evil.into();
    waiting.reason_detail = Some(evil.into());
    let ctx = fixture::ctx();
    let line = job_line(&JobRow::new(&waiting, None), &ctx, 0);
    let mut with_reason = fixture::node(1, 0, 0, 0);
    with_reason.reason = Some(muster_model::node::NodeReason {
        text: evil.into(),
        uid: 0,
        since: fixture::at(0),
    });
    let mut page = Page::new(evil);
    page.take(Update::Lists(Box::new(Lists {
        jobs: vec![line],
        nodes: vec![node_line(&NodeView::new(&with_reason, false, None))],
        ..Lists::default()
    })));
    let mut all = String::new();
    for key in ['1', '3'] {
        press(&mut page, KeyCode::Char(key));
        all += &drawn(&mut page, (120, 24));
    }
    for shown in [
        PageOutput::Note(evil.into()),
        PageOutput::Text {
            title: evil.into(),
            text: evil.into(),
            log_of: None,
        },
    ] {
        page.show(shown);
        all += &drawn(&mut page, (80, 24));
    }
    let is_harmful = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
    assert!(!all.chars().any(is_harmful), "{all:?}");
    assert!(all.matches("[2J").count() >= 5, "{all}");
}

#[test]
fn a_job_is_cancelled_only_after_a_yes() {
    let mut page = page();
    press(&mut page, KeyCode::Down);
    assert!(press(&mut page, KeyCode::Char('c')).is_none());
    assert!(drawn(&mut page, (80, 24)).contains("Cancel job 9? y or n"));
    assert!(press(&mut page, KeyCode::Char('n')).is_none());
    assert!(press(&mut page, KeyCode::Char('y')).is_none());
    press(&mut page, KeyCode::Char('c'));
    // What has come meanwhile does not change which job is meant.
    let mut later = lists();
    later.jobs.insert(0, job(10, "newer"));
    page.take(Update::Lists(Box::new(later)));
    match press(&mut page, KeyCode::Char('y')) {
        Some(Deed::Cancel(target)) => assert_eq!(target.job, JobId(9)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_job_that_is_chosen_stays_so() {
    let mut page = page();
    press(&mut page, KeyCode::End);
    let mut later = lists();
    later.jobs.insert(0, job(10, "newer"));
    page.take(Update::Lists(Box::new(later)));
    assert!(
        matches!(press(&mut page, KeyCode::Char('w')), Some(Deed::Why(line)) if line.id == JobId(8))
    );
    // When it is gone, the line stays.
    page.take(Update::Lists(Box::default()));
    assert_eq!(page.chosen(), 0);
    assert!(press(&mut page, KeyCode::Char('w')).is_none());
}

#[test]
fn keys_do_what_the_help_says() {
    let mut page = page();
    assert!(matches!(press(&mut page, KeyCode::Char('l')), Some(Deed::Log(name)) if name == "7"));
    assert!(press(&mut page, KeyCode::Char('h')).is_none());
    assert!(page.note.contains("wait"));
    press(&mut page, KeyCode::Down);
    assert!(matches!(
        press(&mut page, KeyCode::Char('h')),
        Some(Deed::Hold(_))
    ));
    page.lists.jobs[1].is_held = true;
    assert!(matches!(
        press(&mut page, KeyCode::Char('h')),
        Some(Deed::Release(_))
    ));
    press(&mut page, KeyCode::Tab);
    assert_eq!(page.tab, Tab::Own);
    assert_eq!(page.jobs().len(), 2);
    press(&mut page, KeyCode::BackTab);
    press(&mut page, KeyCode::BackTab);
    assert_eq!(page.tab, Tab::Events);
    page.show(PageOutput::Text {
        title: "out".into(),
        text: (0..50).map(|i| format!("line {i}\n")).collect(),
        log_of: Some("7".into()),
    });
    assert!(drawn(&mut page, (80, 24)).contains("line 49"));
    press(&mut page, KeyCode::Home);
    assert!(drawn(&mut page, (80, 24)).contains("line 0"));
    assert_eq!(page.followed_log().as_deref(), Some("7"));
    assert!(press(&mut page, KeyCode::Char('q')).is_none());
    assert!(page.overlay.is_none());
    assert!(matches!(
        press(&mut page, KeyCode::Char('q')),
        Some(Deed::Quit)
    ));
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert!(matches!(page.press(interrupt), Some(Deed::Quit)));
}

#[test]
fn what_is_kept_is_bounded() {
    let mut page = page();
    for _ in 0..1000 {
        page.take(Update::Events(vec!["line".into(); 100]));
        page.tick();
    }
    assert_eq!(page.events.len(), 1000);
    assert_eq!(page.use_history.len(), page::HISTORY_MAX);
}
