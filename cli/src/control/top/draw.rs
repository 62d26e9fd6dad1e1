//! Draws the screen: the program, the load of its devices, drops, and a row for each range. It adapts to any terminal
//! size.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table};

use super::figures::{Column, Device, Drops, Figures, rate};
use crate::output;

/// Limit of devices shown.
const DEVICES: usize = 8;

/// The width limit of a load bar, and the additional width of its text.
const BAR: usize = 16;
const WORDS: usize = 16;

/// Below this width the title shows only the program.
const WIDE: u16 = 64;

pub(super) struct Screen {
    process: u32,
    program: String,
    figures: Option<Figures>,
    /// The counts of recorded and dropped zones when this command began.
    recorded_before: u64,
    dropped_before: Option<u64>,
    /// The count of dropped zones at the last update.
    dropped: u64,
    /// Zones per second, computed from two updates.
    rate: f64,
    column: Column,
    is_turned: bool,
    first: usize,
    colors: bool,
    /// The program has ended.
    is_over: bool,
}

impl Screen {
    pub(super) fn new(process: u32, program: &str) -> Screen {
        Screen {
            process,
            program: output::printable(&short(program)),
            figures: None,
            recorded_before: 0,
            dropped_before: None,
            dropped: 0,
            rate: 0.0,
            column: Column::Share,
            is_turned: false,
            first: 0,
            colors: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
            is_over: false,
        }
    }

    /// Takes an update. The first one of a session is only the baseline, because watching began in the middle of it.
    pub(super) fn take(&mut self, mut figures: Figures, is_first: bool) {
        let runs: f64 = figures.ranges.iter().map(|range| range.scaled_count).sum();
        self.rate = runs / figures.seconds.max(1e-3);
        // A session that began since the last update counts from zero.
        let dropped = figures.zones.lost();
        if self.dropped_before.is_none_or(|before| before > dropped) {
            (self.dropped_before, self.recorded_before) = (Some(dropped), figures.zones.recorded);
            self.dropped = dropped;
        }
        let ever = self.dropped_before.is_some_and(|before| dropped > before);
        figures.drops = Drops { latest: dropped > std::mem::replace(&mut self.dropped, dropped), ever };
        if !is_first {
            self.figures = Some(figures);
        }
    }

    /// Sorts by the next column to the left or right.
    pub(super) fn sort_by_neighbour(&mut self, step: isize) {
        let at = Column::ALL.iter().position(|column| *column == self.column).unwrap_or(0);
        let next = at.saturating_add_signed(step).min(Column::ALL.len() - 1);
        self.column = Column::ALL[next];
        self.first = 0;
    }

    pub(super) fn turn(&mut self) {
        self.is_turned = !self.is_turned;
        self.first = 0;
    }

    pub(super) fn scroll(&mut self, rows: isize) {
        self.first = self.first.saturating_add_signed(rows);
    }

    pub(super) fn draw(&mut self, frame: &mut Frame<'_>) {
        let devices = self.figures.as_ref().map_or(0, |figures| figures.devices.len().min(DEVICES)) as u16;
        let rows = [
            Constraint::Length(1),
            Constraint::Length(devices),
            Constraint::Length(1),
            Constraint::Fill(1),
            Constraint::Length(1),
        ];
        let [title, busy, zones, table, keys] = Layout::vertical(rows).areas(frame.area());
        self.draw_title(frame, title);
        self.draw_devices(frame, busy);
        self.draw_zones(frame, zones);
        self.draw_table(frame, table);
        self.draw_keys(frame, keys);
    }

    /// Draws the screen without the keys, for a program that has ended.
    pub(super) fn draw_last(&mut self, frame: &mut Frame<'_>) {
        self.is_over = true;
        self.first = 0;
        self.draw(frame);
    }

    fn style(&self, color: Color) -> Style {
        if self.colors { Style::new().fg(color) } else { Style::new() }
    }

    fn draw_title(&self, frame: &mut Frame<'_>, area: Rect) {
        let session = match &self.figures {
            _ if self.is_over => "ended",
            None => "waiting for the first figures",
            Some(figures) if figures.session == "held" => "records for watchers",
            Some(figures) if figures.is_recording => "records for itself",
            Some(_) => "its session is stopped",
        };
        let session = if area.width < WIDE { "" } else { session };
        let sides = [Constraint::Fill(1), Constraint::Length(session.len() as u16 + 2)];
        let [left, right] = Layout::horizontal(sides).areas(area);
        let title = format!(" warpline top  {} {}", self.process, self.program);
        let bar = Style::new().add_modifier(Modifier::REVERSED);
        frame.render_widget(Paragraph::new(title).style(bar.add_modifier(Modifier::BOLD)), left);
        frame.render_widget(Paragraph::new(format!(" {session} ")).style(bar).alignment(Alignment::Right), right);
    }

    fn draw_devices(&self, frame: &mut Frame<'_>, area: Rect) {
        let Some(figures) = &self.figures else { return };
        let name = |device: &Device| {
            if device.kind == "cuda" { format!("gpu {} {}", device.ordinal, device.name) } else { device.name.clone() }
        };
        let devices = || figures.devices.iter().take(DEVICES);
        let room = usize::from(area.width).saturating_sub(2 * (BAR + WORDS)).max(6);
        let width = devices().map(|device| name(device).chars().count()).max().unwrap_or(0).min(room);
        let cells = (usize::from(area.width).saturating_sub(width + 5 + 2 * WORDS) / 2).min(BAR);
        let lines = devices().map(|device| {
            let name: String = output::printable(&name(device)).chars().take(width).collect();
            let mut line = vec![Span::raw(format!(" {name:<width$}  "))];
            let mark = |is_bound: bool| match (figures.is_complete(), is_bound) {
                (true, false) => " ",
                (true, true) => "≤",
                (false, false) => "≥",
                (false, true) => "≈",
            };
            line.extend(self.bar("busy", device.busy, mark(device.busy_is_bound), cells, Color::Green));
            line.push(Span::raw("  "));
            line.extend(self.bar("comm", device.collectives, mark(device.collectives_is_bound), cells, Color::Magenta));
            Line::from(line)
        });
        frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), area);
    }

    fn bar(&self, what: &str, share: f64, mark: &str, cells: usize, color: Color) -> [Span<'static>; 4] {
        let full = ((share.clamp(0.0, 1.0) * cells as f64).round() as usize).min(cells);
        let empty = self.style(Color::DarkGray);
        [
            Span::raw(format!("{what} ")),
            Span::styled("█".repeat(full), self.style(color)),
            Span::styled("░".repeat(cells - full), empty),
            Span::raw(format!(" {mark}{:>5.1} %", share * 100.0)),
        ]
    }

    fn draw_zones(&self, frame: &mut Frame<'_>, area: Rect) {
        let Some(figures) = &self.figures else { return };
        let zones = &figures.zones;
        let dropped = zones.lost().saturating_sub(self.dropped_before.unwrap_or(0));
        let recorded = zones.recorded.saturating_sub(self.recorded_before);
        let estimated = match figures.ranges.iter().any(|range| range.is_sampled) {
            true => "≈",
            false if figures.drops.latest => "≥",
            false => "",
        };
        let mut line = vec![Span::raw(format!(" {estimated}{} zones/s, ", rate(self.rate)))];
        let lost = format!("{dropped} dropped{}", if dropped > 0 { zones.reasons() } else { String::new() });
        let style = if dropped > 0 { self.style(Color::Red).add_modifier(Modifier::BOLD) } else { Style::new() };
        line.push(Span::styled(lost, style));
        line.push(Span::raw(format!(", {recorded} recorded, {} on their way", zones.on_their_way)));
        frame.render_widget(Paragraph::new(Line::from(line)), area);
    }

    fn draw_table(&mut self, frame: &mut Frame<'_>, area: Rect) {
        let columns = Column::fitting(area.width);
        let mut figures = self.figures.clone();
        let ranges = figures.as_mut().map_or(&mut [][..], |figures| &mut figures.ranges[..]);
        ranges.sort_by(|a, b| self.column.order(a, b));
        if self.is_turned {
            ranges.reverse();
        }
        let room = usize::from(area.height.saturating_sub(1)).max(1);
        self.first = self.first.min(ranges.len().saturating_sub(room));
        let seconds = self.figures.as_ref().map_or(1.0, |figures| figures.seconds.max(1e-3));
        let drops = self.figures.as_ref().map_or_else(Drops::default, |figures| figures.drops);
        let cell = |column: Column, text: String| {
            let side = if column == Column::Name { Alignment::Left } else { Alignment::Right };
            Cell::from(Line::from(text).alignment(side))
        };
        let rows = ranges.iter().skip(self.first).take(room).map(|range| {
            let style = match range.kind.as_str() {
                _ if range.count == 0 => self.style(Color::DarkGray),
                "collective" => self.style(Color::Magenta),
                "host" => self.style(Color::Cyan),
                _ => Style::new(),
            };
            let name = |column: Column| if column == Column::Name { " " } else { "" };
            let cells = columns
                .iter()
                .map(|column| cell(*column, name(*column).to_owned() + &column.text(range, seconds, drops)));
            Row::new(cells.collect::<Vec<_>>()).style(style)
        });
        let head = columns.iter().map(|column| {
            let mark = match (*column == self.column, self.is_turned != (self.column == Column::Name)) {
                (false, _) => "",
                (true, false) => "▼",
                (true, true) => "▲",
            };
            let first = if *column == Column::Name { " " } else { "" };
            cell(*column, format!("{first}{mark}{}", column.head()))
        });
        let head =
            Row::new(head.collect::<Vec<_>>()).style(Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED));
        let widths = columns.iter().map(|column| match column {
            Column::Name => Constraint::Fill(1),
            Column::Runs => Constraint::Length(7),
            Column::Share => Constraint::Length(8),
            Column::Mean => Constraint::Length(10),
            Column::Max | Column::Total => Constraint::Length(11),
        });
        let table = Table::new(rows.collect::<Vec<_>>(), widths.collect::<Vec<_>>()).header(head).column_spacing(1);
        frame.render_widget(table, area);
        if ranges.is_empty() && area.height > 2 {
            let text = if self.figures.is_some() { " no zone has ended yet" } else { "" };
            let below = Rect { y: area.y + 1, height: 1, ..area };
            frame.render_widget(Paragraph::new(text).style(self.style(Color::DarkGray)), below);
        }
    }

    fn draw_keys(&self, frame: &mut Frame<'_>, area: Rect) {
        if self.is_over {
            return;
        }
        let shown = self.figures.as_ref().map_or_else(String::new, |figures| match figures.ranges_left_out {
            0 if let Some(share) = figures.recorded_share => {
                format!("recorded {:.1} % of the time, scaled ", share * 100.0)
            }
            0 if figures.not_sampled > 0 => "a sample, scaled to all ".to_owned(),
            0 => format!("{} of {} ranges ran ", figures.ranges.len(), figures.ranges_in_catalog),
            // How much of the excluded work ran is unknown.
            out => format!("{out} of {} ranges left out ", figures.ranges_in_catalog),
        });
        let keys = " ←→ sort  r reverse  ↑↓ scroll  q quit";
        let style = self.style(Color::DarkGray);
        frame.render_widget(Paragraph::new(keys).style(style), area);
        // Prefer the keys if both do not fit.
        if usize::from(area.width) > keys.chars().count() + shown.len() {
            frame.render_widget(Paragraph::new(shown).style(style).alignment(Alignment::Right), area);
        }
    }
}

/// Returns a command line without the program's directory.
fn short(command: &str) -> String {
    let (program, arguments) = command.split_once(' ').unwrap_or((command, ""));
    format!("{} {arguments}", program.rsplit('/').next().unwrap_or(program))
}
