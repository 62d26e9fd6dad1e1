//! `warpline top PID`: a table of what the ranges of a program take, live on a terminal.
//!
//! `figures` is what the program tells and how it is sorted, `draw` the screen. A thread reads the program, this one the keys;
//! the terminal is as it was when it ends, however that is.

mod draw;
mod figures;

use std::io::{self, IsTerminal};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::time::Duration;

use crate::runtime::protocol::Request;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use serde_json::Value;

use super::client::{Client, Reply};
use super::error::{ControlError, MOST_BYTES};
use super::find;
use draw::Screen;
use figures::Figures;

/// How soon a key is noticed while nothing else happens, and new figures are shown.
const LOOKS_EVERY: Duration = Duration::from_millis(50);

/// At most so many looks are taken between two times that it is drawn and keys are read.
const LOOKS: usize = 8;

/// Between two tries to watch a program whose session has just ended.
const TRIES_EVERY: Duration = Duration::from_millis(200);

/// A program that says nothing for so long after its time does not answer.
const SILENCE: Duration = Duration::from_secs(5);

/// What shells say of a process that was interrupted.
const INTERRUPTED: i32 = 130;

/// What the program told.
struct Look {
    figures: Figures,
    /// The first since this watches the session.
    is_first: bool,
}

/// Shows it until somebody presses `q`. Where the program ended, gives the last figures, and says that.
pub(crate) fn top(process: u32, every: Duration) -> Result<Option<String>, ControlError> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(ControlError::NoTerminal { process });
    }
    let every = every.max(Duration::from_millis(100));
    // What is wrong at once is said on the terminal as it is.
    let client = watch(process, every)?;
    // Figures that come faster than they are shown wait in the program.
    let (say, said) = mpsc::sync_channel(LOOKS);
    std::thread::spawn(move || {
        let end = read(process, every, client, &say);
        let _ = say.send(Err(end));
    });
    // Where signals cannot be caught, one that ends this leaves the terminal as it is.
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

/// Whether the reason is that the program came to its end.
fn is_over(error: &ControlError) -> bool {
    match error {
        ControlError::NoProcess { .. } => true,
        ControlError::Gone { process } | ControlError::NotYet { process } | ControlError::NotListening { process } => {
            find::is_over(*process)
        }
        _ => false,
    }
}

/// What the screen showed last, as text that stays when the screen goes.
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
    let mut client = Client::ask(process, &Request::Watch { every_ms })?;
    let _: Value = client.expect("started")?;
    client.bound(Some(every + SILENCE), MOST_BYTES);
    Ok(client)
}

/// Reads figures until there are no more; why is the value.
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
            // It began or ended a session of its own: the next one is watched.
            Ok(Reply::Json(value)) if value["is"] == "ended" && value["why"] != "stopped" => {
                std::thread::sleep(TRIES_EVERY);
                match watch(process, every) {
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

/// Does what a key is for; says whether that is the end.
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
