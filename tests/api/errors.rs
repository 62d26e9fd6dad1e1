//! With `err`, a zone has the text of the error that its function returns, at whichever exit, and the function returns what it returns
//! unmarked.

use std::fmt;
use std::future::Future;
use std::num::ParseIntError;
use std::panic::Location;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use warpline::record::{Status, ZoneRecord};
use warpline::sink::MemorySink;
use warpline::{Session, host_zone};
use warpline_tests::alone;

warpline::range! {
    EXIT = "api.errors.exit": "A function of many exits.", kind = host;
}

/// An error that says where it was converted.
#[derive(Debug, PartialEq)]
enum Failed {
    Parsed(ParseIntError, Line),
    Empty(String),
}

/// A line of this file. Those of two functions that one macro makes are not compared.
#[derive(Debug)]
struct Line(u32);

impl PartialEq for Line {
    fn eq(&self, _: &Line) -> bool {
        true
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failed::Parsed(error, _) => write!(f, "not a number: {error}"),
            Failed::Empty(text) => write!(f, "nothing in `{text}`"),
        }
    }
}

impl From<ParseIntError> for Failed {
    #[track_caller]
    fn from(error: ParseIntError) -> Failed {
        Failed::Parsed(error, Line(Location::caller().line()))
    }
}

impl From<&str> for Failed {
    fn from(text: &str) -> Failed {
        Failed::Empty(text.to_owned())
    }
}

/// As those of `anyhow` and its kin.
macro_rules! bail {
    ($text:expr) => {
        return Err(Failed::Empty(format!("bailed: {}", $text)))
    };
}

macro_rules! ensure {
    ($condition:expr, $($text:tt)*) => {
        if !$condition {
            return Err(Failed::Empty(format!($($text)*)));
        }
    };
}

/// A macro of the program, which may do anything.
macro_rules! leave_at {
    ($text:expr, $wanted:literal) => {
        if $text == $wanted {
            Err($wanted)?;
        }
    };
}

macro_rules! twins {
    ($($name:ident ($($parameter:ident: $type:ty),*) -> $output:ty $body:block)*) => {
        mod plain {
            use std::num::ParseIntError;

            use super::Failed;
            $(pub fn $name ($($parameter: $type),*) -> $output $body)*
        }
        mod marked {
            use std::num::ParseIntError;

            use super::{EXIT, Failed, host_zone};
            $(#[host_zone(EXIT, err)]
            pub fn $name ($($parameter: $type),*) -> $output $body)*
        }

        /// What the unmarked and the marked functions return, by name.
        fn calls(text: &str) -> Vec<(&'static str, Result<u64, Failed>, Result<u64, Failed>)> {
            vec![$((stringify!($name), u64_of(plain::$name(text)), u64_of(marked::$name(text)))),*]
        }
    };
}

fn u64_of<T: Into<u64>>(result: Result<T, Failed>) -> Result<u64, Failed> {
    result.map(Into::into)
}

twins! {
    tail(text: &str) -> Result<u32, Failed> { text.parse::<u32>().map_err(|_| Failed::Empty(text.to_owned())) }
    question(text: &str) -> Result<u32, Failed> {
        let n: u32 = text.parse()?;
        Ok(n)
    }
    question_in_the_tail(text: &str) -> Result<u32, Failed> { Ok(text.parse::<u32>()? + 1) }
    early(text: &str) -> Result<u64, Failed> {
        if text.is_empty() { return Err("early".into()); }
        for part in text.split(',') {
            match part { "one" | "1" => return Ok(1), "two" if part.len() > 3 => return Err(Failed::from("two")), _ => {} }
        }
        return Ok(u64::from(text.parse::<u32>()?));
    }
    thrown(text: &str) -> Result<u32, Failed> {
        if text.len() > 1 { Err("long")?; }
        Ok(3)
    }
    closures(text: &str) -> Result<u32, Failed> {
        let parse = |text: &str| -> Result<u32, Failed> { if text.is_empty() { return Err("inner".into()); } Ok(text.parse::<u32>()?) };
        fn second(text: &str) -> Result<u32, Failed> { Ok(text.parse::<u32>()?) }
        Ok(parse(text).or_else(|_| second(text)).unwrap_or(7) + u32::from(parse("2").is_ok()))
    }
    nested(text: &str) -> Result<u32, Failed> {
        let n = { let parts: Vec<u32> = text.split(',').map(str::parse).collect::<Result<_, _>>()?; parts.len() };
        let text = format!("{}{}", n, u32::try_from(n).map_err(|_| "large")?);
        Ok(if n > 1 { text.parse::<u32>()? } else { 1 })
    }
    bails(text: &str) -> Result<u32, Failed> {
        let owned = text.to_owned();
        if text.len() == 2 { bail!(owned); }
        ensure!(!owned.is_empty(), "no text in {text}");
        Ok(u32::try_from(owned.len()).unwrap_or(0))
    }
    of_the_program(text: &str) -> Result<u32, Failed> {
        leave_at!(text, "1");
        leave_at!(text, "abc");
        Ok(5)
    }
    dynamic(text: &str) -> Result<u32, Failed> {
        let numbers: Box<dyn Iterator<Item = Result<u32, ParseIntError>>> = Box::new(text.split(',').map(str::parse::<u32>));
        let mut sum = 0;
        'all: for number in numbers { if sum > 100 { break 'all; } sum += number?; }
        Ok(sum)
    }
}

const TEXTS: [&str; 9] = ["", "1", "12", "abc", "one", "two,x", "1,2", "7,x", "4000000000,4000000000"];

#[test]
fn a_zone_has_the_error_that_its_function_returns_at_each_exit() {
    let (zones, calls) = record(|| TEXTS.map(calls).into_iter().flatten().collect::<Vec<_>>());
    assert_eq!(zones.len(), calls.len());
    let mut failed = 0;
    for (zone, (name, plain, marked)) in zones.iter().zip(&calls) {
        assert_eq!(marked, plain, "`{name}` returns the same");
        let expected = match plain {
            Ok(_) => (Status::Complete, None),
            Err(error) => (Status::Error, Some(error.to_string())),
        };
        assert_eq!((zone.status, zone.error.as_deref().map(str::to_owned)), expected, "{name}");
        failed += usize::from(plain.is_err());
    }
    assert!(failed > 20, "{failed} of {} fail", calls.len());
}

#[host_zone(EXIT, err)]
fn converted(text: &str) -> Result<(u32, u32), Failed> {
    let n = text.parse::<u32>()?;
    Ok((n, line!()))
}

#[test]
fn an_error_is_converted_where_the_function_converts_it() {
    // Its zones would be in the session of another test.
    let _turn = alone();
    let (_, line) = converted("1").expect("it is a number");
    let Err(Failed::Parsed(_, Line(of_error))) = converted("x") else { panic!("it is no number") };
    assert_eq!(of_error, line - 1);
}

/// Waits once, and leaves at each kind of exit.
#[host_zone(EXIT, err)]
async fn later(text: &str) -> Result<u32, Failed> {
    let inner = async {
        yielded().await;
        Ok::<u32, Failed>(text.parse::<u32>()?)
    };
    let first = inner.await;
    if text.is_empty() {
        return Err("later".into());
    }
    yielded().await;
    let Ok(first) = first else { Err("inner")? };
    match yielded().await {
        () if first > 9 => bail!("large"),
        () => Ok(first + text.parse::<u32>()?),
    }
}

/// Pending once.
async fn yielded() {
    let mut is_second = false;
    std::future::poll_fn(|_| if std::mem::replace(&mut is_second, true) { Poll::Ready(()) } else { Poll::Pending })
        .await;
}

#[test]
fn the_zone_of_a_future_has_its_error_too() {
    let (zones, results) = record(|| {
        ["", "x", "12", "4"].map(|text| {
            let (mut future, mut context) = (pin!(later(text)), Context::from_waker(Waker::noop()));
            loop {
                if let Poll::Ready(result) = future.as_mut().poll(&mut context) {
                    return result;
                }
            }
        })
    });
    let texts: Vec<_> = results.iter().map(|result| result.as_ref().err().map(ToString::to_string)).collect();
    let expected = [Some("nothing in `later`"), Some("nothing in `inner`"), Some("nothing in `bailed: large`"), None];
    assert_eq!(texts.iter().map(Option::as_deref).collect::<Vec<_>>(), expected);
    assert_eq!(zones.iter().map(|zone| zone.error.as_deref()).collect::<Vec<_>>(), expected);
}

fn record<T>(work: impl FnOnce() -> T) -> (Vec<ZoneRecord>, T) {
    let _turn = alone();
    let zones = MemorySink::new(1_000);
    let session = Session::builder().sink(zones.clone()).start().expect("no other session");
    let value = work();
    let report = session.finish();
    assert_eq!(report.recorded, report.begun, "{report}");
    (zones.take(), value)
}
