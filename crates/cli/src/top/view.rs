//! Draws the page: a line that sums up, two graphs, a list, and what keys there are. All texts come clean from where they are made.

use super::gather::{JobLine, NodeLine};
use super::page::{HISTORY_MAX, Overlay, Page, Tab};
use crate::listing::text;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Row, Sparkline, Table, TableState};
use std::collections::VecDeque;

const KEYS: &str = "Tab list  ↑↓ line  w why  l log  c cancel  h hold/release  q quit";
const OVERLAY_KEYS: &str = "↑↓ PgUp PgDn scroll  q back";

/// Draws all of it.
pub(super) fn draw(frame: &mut Frame<'_>, page: &mut Page) {
    let [head, graphs, tabs, list, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(3),
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(summary(page), head);
    draw_graphs(frame, page, graphs);
    frame.render_widget(titles(page.tab), tabs);
    match page.tab {
        Tab::Queue | Tab::Own => draw_jobs(frame, page, list),
        Tab::Nodes => draw_nodes(frame, page, list),
        Tab::Events => draw_events(frame, page, list),
    }
    if let Some(overlay) = &mut page.overlay {
        draw_overlay(frame, overlay, list);
    }
    let keys = match page.overlay {
        Some(_) => OVERLAY_KEYS,
        None => KEYS,
    };
    let foot_line = match (&page.question, page.note.as_str()) {
        (Some((question, _)), _) => Line::from(question.as_str()).style(Style::new().bold()),
        (None, "") => Line::from(keys).style(Style::new().dim()),
        (None, note) => Line::from(note).style(Style::new().fg(Color::Yellow)),
    };
    frame.render_widget(foot_line, foot);
}

fn summary(page: &Page) -> Line<'_> {
    if !page.is_known {
        return Line::from(format!("{}: asking the controller", page.lists.cluster));
    }
    let wrong = page.lists.nodes.iter().filter(|node| node.is_wrong).count();
    let nodes = match (page.lists.nodes_withheld, wrong) {
        (true, _) => "nodes are private".to_owned(),
        (false, 0) => format!("{} nodes", page.lists.nodes.len()),
        (false, wrong) => format!("{} nodes, {wrong} not in order", page.lists.nodes.len()),
    };
    Line::from(vec![
        Span::styled(page.lists.cluster.as_str(), Style::new().bold()),
        Span::raw(format!(
            "  {} running, {} waiting  {nodes}",
            page.lists.running, page.lists.pending
        )),
    ])
}

fn titles(shown: Tab) -> Line<'static> {
    let title = |tab: Tab| {
        let style = match tab == shown {
            true => Style::new().add_modifier(Modifier::REVERSED),
            false => Style::new(),
        };
        [
            Span::styled(format!(" {} ", tab.title()), style),
            Span::raw(" "),
        ]
    };
    Line::from_iter(Tab::ALL.into_iter().flat_map(title))
}

fn draw_graphs(frame: &mut Frame<'_>, page: &Page, area: Rect) {
    let [left, _, right] = Layout::horizontal([
        Constraint::Fill(1),
        Constraint::Length(2),
        Constraint::Fill(1),
    ])
    .areas(area);
    let (used, all) = page.cpus();
    let title = format!("{used} of {all} CPUs in use");
    draw_graph(frame, (left, title), &page.use_history, Some(100));
    let title = format!("{} jobs waiting", page.lists.pending);
    draw_graph(frame, (right, title), &page.wait_history, None);
}

fn draw_graph(
    frame: &mut Frame<'_>,
    (area, title): (Rect, String),
    history: &VecDeque<u64>,
    most: Option<u64>,
) {
    let [top, graph] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    frame.render_widget(Line::from(title), top);
    let width = usize::from(graph.width).min(HISTORY_MAX);
    let values: Vec<u64> = history.iter().rev().take(width).rev().copied().collect();
    let most = most.unwrap_or_else(|| values.iter().copied().max().unwrap_or(0).max(1));
    let line = Sparkline::default()
        .data(values)
        .max(most)
        .style(Style::new().fg(Color::Cyan));
    frame.render_widget(line, graph);
}

/// A list with heads, in which a line is chosen.
fn draw_table(
    frame: &mut Frame<'_>,
    area: Rect,
    (rows, chosen): (Vec<Row<'_>>, usize),
    heads: &[&'static str],
    widths: &[Constraint],
) {
    // Only what fits is laid out: a queue may be long.
    let height = usize::from(area.height.saturating_sub(1)).max(1);
    let first = chosen
        .saturating_sub(height / 2)
        .min(rows.len().saturating_sub(height));
    let table = Table::new(rows.into_iter().skip(first).take(height), widths)
        .header(Row::new(heads.iter().copied()).style(Style::new().bold()))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::new().with_selected(chosen - first);
    frame.render_stateful_widget(table, area, &mut state);
}

fn draw_jobs(frame: &mut Frame<'_>, page: &Page, area: Rect) {
    let jobs = page.jobs();
    if jobs.is_empty() {
        let text = match (page.is_known, page.tab) {
            (false, _) => "",
            (true, Tab::Own) => "None of your jobs is in the queue.",
            (true, _) => "The queue is empty.",
        };
        return frame.render_widget(Line::from(text), area);
    }
    let rows = jobs.iter().map(|job| job_row(job, page.age_s)).collect();
    let heads = [
        "JOBID",
        "PARTITION",
        "NAME",
        "USER",
        "ST",
        "TIME",
        "CPUS",
        "NODELIST(REASON)",
    ];
    let widths = [
        Constraint::Length(10),
        Constraint::Length(9),
        Constraint::Length(12),
        Constraint::Length(8),
        Constraint::Length(2),
        Constraint::Length(10),
        Constraint::Length(4),
        Constraint::Min(10),
    ];
    draw_table(frame, area, (rows, page.chosen()), &heads, &widths);
}

fn job_row(job: &JobLine, age_s: i64) -> Row<'_> {
    let ran_s = match job.runs {
        true => job.ran_s + age_s,
        false => job.ran_s,
    };
    let ran = text::collect(|out| text::short_duration(out, ran_s));
    let style = match (job.runs, job.is_pending) {
        (true, _) => Style::new().fg(Color::Green),
        (false, true) => Style::new(),
        (false, false) => Style::new().fg(Color::Yellow),
    };
    Row::new([
        job.name.clone().into(),
        job.partition.clone().into(),
        job.title.clone().into(),
        job.user.clone().into(),
        Line::styled(job.state, style),
        Line::from(ran).right_aligned(),
        Line::from(job.cpus.to_string()).right_aligned(),
        job.place.clone().into(),
    ])
}

fn draw_nodes(frame: &mut Frame<'_>, page: &Page, area: Rect) {
    if page.lists.nodes_withheld {
        return frame.render_widget(
            Line::from("Nodes are not shown to you (PrivateData)."),
            area,
        );
    }
    let rows = page.lists.nodes.iter().map(node_row).collect();
    let heads = [
        "NODE", "STATE", "CPUS", "USE", "LOAD", "FREE", "MEMORY", "JOBS", "REASON",
    ];
    let widths = [
        Constraint::Length(12),
        Constraint::Length(11),
        Constraint::Length(8),
        Constraint::Length(8),
        Constraint::Length(6),
        Constraint::Length(6),
        Constraint::Length(6),
        Constraint::Length(4),
        Constraint::Min(8),
    ];
    draw_table(frame, area, (rows, page.chosen()), &heads, &widths);
}

fn node_row(node: &NodeLine) -> Row<'_> {
    const BAR: u32 = 8;
    let memory = |mib| text::collect(|out| text::memory(out, mib, false));
    let full = (node.used_cpus * BAR)
        .checked_div(node.cpus)
        .unwrap_or(0)
        .min(BAR) as usize;
    let bar = format!("{}{}", "█".repeat(full), "·".repeat(BAR as usize - full));
    let style = match (node.is_wrong, node.used_cpus) {
        (true, _) => Style::new().fg(Color::Red),
        (false, 0) => Style::new(),
        (false, _) => Style::new().fg(Color::Green),
    };
    Row::new([
        node.name.clone().into(),
        Line::styled(node.state.clone(), style),
        Line::from(format!("{}/{}", node.used_cpus, node.cpus)),
        Line::styled(bar, Style::new().fg(Color::Cyan)),
        Line::from(node.load.clone()).right_aligned(),
        Line::from(node.free_mib.map_or_else(String::new, memory)).right_aligned(),
        Line::from(memory(node.mib)).right_aligned(),
        Line::from(node.jobs.to_string()).right_aligned(),
        node.reason.clone().into(),
    ])
}

/// The newest events last, as in a log; the line that is chosen is counted from the newest.
fn draw_events(frame: &mut Frame<'_>, page: &Page, area: Rect) {
    if page.events.is_empty() {
        return frame.render_widget(Line::from("Nothing has changed so far."), area);
    }
    let height = usize::from(area.height);
    let newest = page.events.iter().rev().skip(page.chosen()).take(height);
    let mut lines: Vec<Line<'_>> = newest.map(|line| Line::from(line.as_str())).collect();
    lines.reverse();
    frame.render_widget(Paragraph::new(lines), area);
}

fn draw_overlay(frame: &mut Frame<'_>, overlay: &mut Overlay, area: Rect) {
    let block = Block::bordered().title(overlay.title.as_str());
    let inner = block.inner(area);
    let height = usize::from(inner.height);
    // Not beyond the begin.
    overlay.below = overlay
        .below
        .min(overlay.lines.len().saturating_sub(height));
    let end = overlay.lines.len() - overlay.below;
    let first = end.saturating_sub(height);
    let shown = overlay.lines.iter().skip(first).take(end - first);
    let lines: Vec<Line<'_>> = shown.map(|line| Line::from(line.as_str())).collect();
    frame.render_widget(Clear, area);
    frame.render_widget(block, area);
    frame.render_widget(Paragraph::new(lines), inner);
}
