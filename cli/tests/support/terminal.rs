//! A terminal with nobody in front of it: a pty, what a program writes on it as a screen, and that screen as a picture.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::target::SOON;

pub struct Terminal {
    pub child: Child,
    master: File,
    screen: Arc<Mutex<vt100::Parser>>,
}

impl Terminal {
    /// Starts a program on a terminal of this size.
    pub fn start(mut command: Command, rows: u16, columns: u16) -> Terminal {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pty");
        grantpt(&master).and_then(|()| unlockpt(&master)).expect("a pty");
        let name = ptsname(&master, Vec::new()).expect("its name").into_string().expect("UTF-8");
        tcsetwinsize(&master, size(rows, columns)).expect("a size");
        let slave = OpenOptions::new().read(true).write(true).open(name).expect("the other end");
        let end = || Stdio::from(slave.try_clone().expect("a file"));
        command.env("TERM", "xterm-256color").env_remove("NO_COLOR").stdin(end()).stdout(end()).stderr(end());
        // SAFETY: both are single calls of the system, which a child may make before it becomes another program.
        unsafe {
            command.pre_exec(|| {
                rustix::process::setsid()?;
                rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
                Ok(())
            });
        }
        let child = command.spawn().expect("it starts");
        drop(command);
        let master = File::from(master);
        let screen = Arc::new(Mutex::new(vt100::Parser::new(cells(rows), cells(columns), 0)));
        let (mut from, to) = (master.try_clone().expect("a file"), Arc::clone(&screen));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                to.lock().expect("a screen").process(&bytes[..count]);
            }
        });
        Terminal { child, master, screen }
    }

    pub fn press(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).expect("it reads");
    }

    pub fn resize(&self, rows: u16, columns: u16) {
        self.screen.lock().expect("a screen").screen_mut().set_size(cells(rows), cells(columns));
        tcsetwinsize(&self.master, size(rows, columns)).expect("a size");
    }

    /// The lines, without blanks at their ends.
    pub fn lines(&self) -> Vec<String> {
        let screen = self.screen.lock().expect("a screen");
        let (_, columns) = screen.screen().size();
        screen.screen().rows(0, columns.get()).map(|line| line.trim_end().to_owned()).collect()
    }

    /// Waits until the screen is so and stays for a moment, as it does when all of it is drawn, and gives it.
    pub fn until(&self, what: &str, is_so: impl Fn(&[String]) -> bool) -> Vec<String> {
        let deadline = Instant::now() + SOON;
        let mut before = Vec::new();
        loop {
            let lines = self.lines();
            if is_so(&lines) && lines == before {
                return lines;
            }
            assert!(Instant::now() < deadline, "never: {what}:\n{}", lines.join("\n"));
            before = lines;
            std::thread::sleep(Duration::from_millis(30));
        }
    }

    /// Whether a program has the whole screen, as long as it runs.
    pub fn is_taken(&self) -> bool {
        self.screen.lock().expect("a screen").screen().alternate_screen()
    }

    /// The screen as a picture: a card, light or dark as the reader's system is.
    pub fn svg(&self, label: &str) -> String {
        const LETTER: f64 = 7.83;
        const LINE: f64 = 18.0;
        const MARGIN: f64 = 14.0;
        let parser = self.screen.lock().expect("a screen");
        let screen = parser.screen();
        let (rows, columns) = screen.size();
        let (rows, columns) = (rows.get(), columns.get());
        let (width, height) = (f64::from(columns) * LETTER + 2.0 * MARGIN, f64::from(rows) * LINE + 2.0 * MARGIN);
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" aria-label=\"{label}\">\n<style>{STYLE}</style>\n<rect class=\"card\" x=\".5\" y=\".5\" width=\"{:.0}\" height=\"{:.0}\" rx=\"8\"/>\n",
            width - 1.0,
            height - 1.0
        );
        for row in 0..rows {
            let y = MARGIN + f64::from(row) * LINE;
            let mut column = 0;
            while column < columns {
                let class = |column| screen.cell(row, column).map(class).unwrap_or_default();
                let (begin, of) = (column, class(column));
                let mut text = String::new();
                while column < columns && class(column) == of {
                    let letter = screen.cell(row, column).map(|cell| cell.contents().to_owned()).unwrap_or_default();
                    text += if letter.is_empty() { " " } else { &letter };
                    column += 1;
                }
                let (x, length) = (MARGIN + f64::from(begin) * LETTER, f64::from(column - begin) * LETTER);
                if of.contains("inverse") {
                    let _ = writeln!(
                        out,
                        "<rect class=\"bar\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{length:.1}\" height=\"{LINE}\"/>"
                    );
                }
                if of.contains("underline") {
                    let (to, y) = (x + length, y + LINE - 1.0);
                    let _ = writeln!(
                        out,
                        "<line class=\"under\" x1=\"{x:.1}\" y1=\"{y:.1}\" x2=\"{to:.1}\" y2=\"{y:.1}\"/>"
                    );
                }
                draw_words(&text, &of, (x, y), (LETTER, LINE), &mut out);
            }
        }
        out + "</svg>\n"
    }
}

/// Each word at its own place, so that columns stand whatever the letters of the reader's font are; bars as bars.
fn draw_words(text: &str, class: &str, (x, y): (f64, f64), (letter, line): (f64, f64), out: &mut String) {
    let letters: Vec<char> = text.chars().collect();
    let mut at = 0;
    while at < letters.len() {
        let of = |letter: char| match letter {
            ' ' => 0,
            '█' => 1,
            '░' => 2,
            _ => 3,
        };
        let (begin, kind) = (at, of(letters[at]));
        while at < letters.len() && of(letters[at]) == kind {
            at += 1;
        }
        let (x, length) = (x + begin as f64 * letter, (at - begin) as f64 * letter);
        let _ = match kind {
            0 => Ok(()),
            1 | 2 => {
                let (y, height, fade) = (y + 3.0, line - 6.0, if kind == 1 { "" } else { " fade" });
                writeln!(
                    out,
                    "<rect class=\"{class}{fade}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{length:.1}\" height=\"{height:.1}\"/>"
                )
            }
            _ => {
                let word = letters[begin..at].iter().collect::<String>().replace('&', "&amp;").replace('<', "&lt;");
                writeln!(
                    out,
                    "<text class=\"{class}\" x=\"{x:.1}\" y=\"{:.1}\" textLength=\"{length:.1}\">{word}</text>",
                    y + 13.0
                )
            }
        };
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn size(rows: u16, columns: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

const STYLE: &str = "
  text { font: 13px ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace; fill: #1f2328 }
  .bold { font-weight: 600 } .c8 { fill: #818b98 } .c2 { fill: #1a7f37 } .c5 { fill: #8250df } .c6 { fill: #1b7c83 } .c1 { fill: #cf222e }
  .under { stroke: #d0d7de } .fade { fill-opacity: .3 } .inverse { fill: #ffffff } .bar { fill: #1f2328 }
  .card { fill: #ffffff; stroke: #d0d7de }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .c8 { fill: #767e89 } .c2 { fill: #3fb950 } .c5 { fill: #ab7df8 } .c6 { fill: #39c5cf } .c1 { fill: #f85149 }
    .inverse { fill: #161b22 } .bar { fill: #e6edf3 } .card { fill: #161b22; stroke: #30363d } .under { stroke: #30363d }
  }
";

/// What a cell looks like.
fn class(cell: &vt100::Cell) -> String {
    let mut class = String::new();
    let mut add = |is_so: bool, name: &str| {
        if is_so {
            class += name;
            class += " ";
        }
    };
    add(cell.bold(), "bold");
    add(cell.underline(), "underline");
    add(cell.inverse(), "inverse");
    if let vt100::Color::Idx(color) = cell.fgcolor() {
        add(true, &format!("c{color}"));
    }
    class.trim_end().to_owned()
}

fn cells(count: u16) -> NonZeroU16 {
    NonZeroU16::new(count).expect("a terminal has cells")
}
