//! `warpline top PID`: a table of what the ranges of a program take, live on a terminal.
//!
//! `figures` is what the program tells and how it is sorted, `draw` the screen. A thread reads the program, this one the keys;
//! the terminal is as it was when it ends, however that is.

mod draw;
mod figures;

use std::io::{self, IsTerminal};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use serde_json::Value;
use warpline::__private::protocol::Request;

use super::client::{Client, ControlError, Reply};
use super::find;
use draw::Screen;
use figures::Figures;

/// How soon a key is noticed while nothing else happens, and new figures are shown.
const LOOKS_EVERY: Duration = Duration::from_millis(50);

/// Between two tries to watch a program whose session has just ended.
const TRIES_EVERY: Duration = Duration::from_millis(200);

/// A program that says nothing for so long after its time does not answer.
const SILENCE: Duration = Duration::from_secs(5);

/// What shells say of a process that was interrupted.
const INTERRUPTED: i32 = 130;

/// Shows it until somebody presses `q`.
pub(crate) fn top(process: u32, every: Duration) -> Result<(), ControlError> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(ControlError::NoTerminal { process });
    }
    let every = every.max(Duration::from_millis(100));
    // What is wrong at once is said on the terminal as it is.
    let client = watch(process, every)?;
    let (say, said) = mpsc::channel();
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
    let end = show(&mut terminal, &mut Screen::new(process, &program), &said);
    ratatui::restore();
    end
}

fn watch(process: u32, every: Duration) -> Result<Client, ControlError> {
    let every_ms = u64::try_from(every.as_millis()).unwrap_or(u64::MAX);
    let mut client = Client::ask(process, &Request::Watch { every_ms })?;
    let _: Value = client.expect("started")?;
    client.wait(Some(every + SILENCE));
    Ok(client)
}

/// Reads figures until there are no more; why is the value.
fn read(
    process: u32,
    every: Duration,
    mut client: Client,
    say: &Sender<Result<Figures, ControlError>>,
) -> ControlError {
    loop {
        let figures = match client.next() {
            Ok(Reply::Json(value)) if value["is"] == "figures" => serde_json::from_value::<Figures>(value),
            // It began or ended a session of its own: the next one is watched.
            Ok(Reply::Json(value)) if value["is"] == "ended" && value["why"] != "stopped" => {
                std::thread::sleep(TRIES_EVERY);
                match watch(process, every) {
                    Ok(next) => client = next,
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
                if say.send(Ok(figures)).is_err() {
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
    said: &Receiver<Result<Figures, ControlError>>,
) -> Result<(), ControlError> {
    let mut is_new = true;
    loop {
        while let Ok(figures) = said.try_recv() {
            screen.take(figures?);
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
