//! `warpline top PID`: a live table of the time that a program's ranges take.
//!
//! `figures` holds what the program sends and sorts it, `draw` draws the screen. One thread reads from the program, the
//! main thread reads keys. The terminal is always restored.

mod draw;
mod figures;

use std::io::{self, IsTerminal};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use serde_json::Value;

use super::client::{Client, Reply};
use super::error::{ControlError, MOST_BYTES};
use super::find;
use crate::runtime::protocol::ControlRequest;
use draw::Screen;
use figures::Figures;

/// How often keys and new figures are polled.
const LOOKS_EVERY: Duration = Duration::from_millis(50);

/// How many updates are taken between two draws.
const LOOKS: usize = 8;

/// The pause before each attempt to watch a program whose session has just ended.
const TRIES_EVERY: Duration = Duration::from_millis(200);

/// A program that is this late with its figures does not answer.
const SILENCE: Duration = Duration::from_secs(5);

/// The exit status of an interrupted process, as shells report it.
const INTERRUPTED: i32 = 130;

/// One update from the program.
struct Look {
    figures: Figures,
    /// The first update of a session.
    is_first: bool,
}

/// Shows the table until `q` is pressed. If the program ends, returns the last table with a line that reports the end.
pub(crate) fn top(process: u32, every: Duration) -> Result<Option<String>, ControlError> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(ControlError::NoTerminal { process });
    }
    let every = every.max(Duration::from_millis(100));
    // An error at the start is printed on the plain terminal.
    let client = watch(process, every)?;
    // Figures that arrive faster than they are drawn wait in the program.
    let (say, said) = mpsc::sync_channel(LOOKS);
    std::thread::spawn(move || {
        let end = read(process, every, client, &say);
        let _ = say.send(Err(end));
    });
    // If signals cannot be caught, one that ends this process does not restore the terminal.
    let _ = ctrlc::set_handler(|| {
        ratatui::restore();
        std::process::exit(INTERRUPTED);
    });
    let mut terminal = ratatui::try_init().map_err(ControlError::Terminal)?;
    let program = find::command(process).unwrap_or_default();
    let mut screen = Screen::new(process, &program);
    let end = show(&mut terminal, &mut screen, &said);
    let last = end.as_ref().is_err_and(is_over).then(|| last_look(&mut terminal, &mut screen));
    ratatui::restore();
    match (end, last) {
        (Err(_), Some(last)) => Ok(Some(format!("{last}process {process} ended\n"))),
        (end, _) => end.map(|()| None),
    }
}

/// Whether the error means that the program has ended.
fn is_over(error: &ControlError) -> bool {
    match error {
        ControlError::NoProcess { .. } => true,
        ControlError::Gone { process } | ControlError::NotYet { process } | ControlError::NotListening { process } => {
            find::is_over(*process)
        }
        _ => false,
    }
}

/// The last screen as plain text.
fn last_look(terminal: &mut ratatui::DefaultTerminal, screen: &mut Screen) -> String {
    let Ok(drawn) = terminal.draw(|frame| screen.draw_last(frame)) else { return String::new() };
    let width = usize::from(drawn.area.width).max(1);
    let lines = drawn.buffer.content.chunks(width).map(|cells| {
        let line: String = cells.iter().map(ratatui::buffer::Cell::symbol).collect();
        line.trim_end().to_owned() + "\n"
    });
    let text: String = lines.collect();
    text.trim_end().to_owned() + "\n"
}

fn watch(process: u32, every: Duration) -> Result<Client, ControlError> {
    let every_ms = u64::try_from(every.as_millis()).unwrap_or(u64::MAX);
    let mut client = Client::ask(process, &ControlRequest::Watch { every_ms })?;
    let _: Value = client.expect("started")?;
    client.bound(Some(every + SILENCE), MOST_BYTES);
    Ok(client)
}

/// Watches a program whose session has just begun or ended, as soon as it has done so.
fn watch_again(process: u32, every: Duration) -> Result<Client, ControlError> {
    let deadline = Instant::now() + SILENCE;
    loop {
        std::thread::sleep(TRIES_EVERY);
        match watch(process, every) {
            Err(ControlError::Changing { .. }) if Instant::now() < deadline => {}
            answer => return answer,
        }
    }
}

/// Sends figures to the main thread until an error ends them, and returns the error.
fn read(
    process: u32,
    every: Duration,
    mut client: Client,
    say: &SyncSender<Result<Look, ControlError>>,
) -> ControlError {
    let mut is_first = true;
    loop {
        let figures = match client.next() {
            Ok(Reply::Json(value)) if value["is"] == "figures" => serde_json::from_value::<Figures>(value),
            // It started or ended a session of its own: watch the next one.
            Ok(Reply::Json(value)) if value["is"] == "ended" && value["why"] != "stopped" => {
                match watch_again(process, every) {
                    Ok(next) => (client, is_first) = (next, true),
                    Err(error) => return error,
                }
                continue;
            }
            Ok(Reply::Json(value)) if value["is"] == "ended" => {
                let text = "somebody ended this with `warpline stop`".to_owned();
                return ControlError::Refused { process, text };
            }
            Ok(_) => continue,
            Err(error) => return error,
        };
        match figures {
            Ok(figures) => {
                client.bound(Some(every + SILENCE), MOST_BYTES);
                let is_first = std::mem::take(&mut is_first);
                if say.send(Ok(Look { figures, is_first })).is_err() {
                    return ControlError::Gone { process };
                }
            }
            Err(error) => return ControlError::Strange { process, what: error.to_string() },
        }
    }
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    screen: &mut Screen,
    said: &Receiver<Result<Look, ControlError>>,
) -> Result<(), ControlError> {
    let mut is_new = true;
    loop {
        for look in said.try_iter().take(LOOKS) {
            let Look { figures, is_first } = look?;
            screen.take(figures, is_first);
            is_new = true;
        }
        if std::mem::take(&mut is_new) {
            terminal.draw(|frame| screen.draw(frame)).map_err(ControlError::Terminal)?;
        }
        if !event::poll(LOOKS_EVERY).map_err(ControlError::Terminal)? {
            continue;
        }
        is_new = true;
        match event::read().map_err(ControlError::Terminal)? {
            Event::Key(key) if key.kind != KeyEventKind::Release && press(screen, key) => return Ok(()),
            _ => {}
        }
    }
}

/// Handles a key. Returns whether it ends the command.
fn press(screen: &mut Screen, key: KeyEvent) -> bool {
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return true,
        KeyCode::Char('q') | KeyCode::Esc => return true,
        KeyCode::Left | KeyCode::Char('h') => screen.sort_by_neighbour(-1),
        KeyCode::Right | KeyCode::Char('l') => screen.sort_by_neighbour(1),
        KeyCode::Char('r') => screen.turn(),
        KeyCode::Up | KeyCode::Char('k') => screen.scroll(-1),
        KeyCode::Down | KeyCode::Char('j') => screen.scroll(1),
        KeyCode::PageUp => screen.scroll(-10),
        KeyCode::PageDown => screen.scroll(10),
        KeyCode::Home => screen.scroll(isize::MIN),
        _ => {}
    }
    false
}
