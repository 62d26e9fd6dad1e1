//! The limits of a user's query: time, memory of the process, and stack. The query runs on a thread of its own, which
//! is abandoned when a limit is reached, because planning and single operators cannot be stopped. The caller then ends
//! the process. Called by the command.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

use crate::error::Error;

/// The time for the answer to a query of a user, unless `--timeout` says otherwise.
const TIME: Duration = Duration::from_secs(60);

/// The number of bytes by which a query may make the process larger. The engine counts only its large operators
/// ([`super::sql`]), and no functions of texts.
const GROWTH: u64 = 3 << 30;

/// How often the limits are looked at: a query may take several GiB in a second.
const LOOK: Duration = Duration::from_millis(10);

/// The plan of a query is as deep as it has terms, and all that is done with plans calls itself for each. A stack takes
/// memory only where it is used.
const STACK: usize = 256 << 20;

/// The same of the threads that run a plan.
pub(super) const WORKER_STACK: usize = 32 << 20;

/// The parts that a query may have: what these stacks hold, in a build without optimization too, is twice as much.
const PARTS: usize = 4096;

/// The limits of a query.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    time: Option<Duration>,
    growth: Option<u64>,
}

impl Limits {
    /// A large stack, and no limit.
    pub fn none() -> Self {
        Self { time: None, growth: None }
    }

    /// No limit of time.
    pub fn of_memory() -> Self {
        Self { time: None, growth: Some(GROWTH) }
    }

    /// The time that the user gives it.
    pub fn of_query(time: Option<Duration>) -> Self {
        Self { time: Some(time.unwrap_or(TIME)), growth: Some(GROWTH) }
    }

    /// The answer, if it comes within the limits. If it does not, the work goes on until the process ends.
    ///
    /// # Errors
    /// The errors of the work, and a limit that is reached.
    pub fn within<T: Send + 'static>(
        self,
        work: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (send, answer) = mpsc::sync_channel(1);
        let thread = std::thread::Builder::new().name("query".to_owned()).stack_size(STACK);
        let (begin, before) = (Instant::now(), resident());
        let started = thread.spawn(move || {
            let _ = send.send(work());
        });
        started.map_err(|error| Error::Asked(format!("cannot start a thread for the query: {error}")))?;
        loop {
            match answer.recv_timeout(LOOK) {
                Ok(answer) => return answer,
                Err(RecvTimeoutError::Disconnected) => return Err(Error::Panicked),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if let Some(time) = self.time.filter(|time| begin.elapsed() > *time) {
                return Err(Error::TooLong { seconds: time.as_secs() });
            }
            if let Some(growth) = self.growth.filter(|growth| resident().saturating_sub(before) > *growth) {
                return Err(Error::TooLarge { gib: growth >> 30 });
            }
        }
    }
}

/// The bytes of this process in memory and in swap; 0 on systems without `/proc`, where there is no limit.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let of = |line: &str| {
        let kib = line.strip_prefix("VmRSS:").or_else(|| line.strip_prefix("VmSwap:"))?;
        kib.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    };
    status.lines().filter_map(of).sum::<u64>() << 10
}

/// Refuses a query whose plan may be too deep for the stacks. The values of a list are no deeper than one of them.
pub(super) fn check_length(sql: &str) -> Result<(), Error> {
    // If it is not SQL, the parser has the better message.
    let Ok(tokens) = Tokenizer::new(&GenericDialect {}, sql).tokenize() else { return Ok(()) };
    let mut parts = 0;
    let mut rest = tokens.iter().filter(|token| !matches!(token, Token::Whitespace(_))).peekable();
    while let Some(token) = rest.next() {
        let is_value = |token: &&Token| matches!(token, Token::Number(..) | Token::SingleQuotedString(_));
        if *token != Token::Comma || rest.next_if(is_value).is_none() {
            parts += 1;
        }
    }
    if parts > PARTS { Err(Error::TooManyParts { parts, most: PARTS }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_comes_and_limits_end_the_wait() {
        assert_eq!(Limits::none().within(|| Ok(7)).unwrap(), 7);
        let wait = || -> Result<(), Error> {
            loop {
                std::thread::park();
            }
        };
        let ended = Limits::of_query(Some(Duration::from_millis(1))).within(wait).unwrap_err();
        assert!(matches!(ended, Error::TooLong { seconds: 0 }), "{ended}");
        let ended = Limits { time: None, growth: Some(64 << 20) }.within(|| {
            let held = vec![1_u8; 256 << 20];
            loop {
                std::hint::black_box(&held);
                std::thread::park();
            }
            #[allow(unreachable_code)]
            Ok(())
        });
        assert!(matches!(ended, Err(Error::TooLarge { .. })), "{ended:?}");
        let ended = Limits::none().within(|| -> Result<(), Error> { panic!("a defect of the engine") }).unwrap_err();
        assert!(matches!(ended, Error::Panicked), "{ended}");
    }

    #[test]
    fn a_list_of_values_is_as_long_as_one_value() {
        let list = |value: &str| format!("SELECT 1 WHERE 1 IN (1{})", format!(", {value}").repeat(100_000));
        assert!([list("1"), list("'a'")].iter().all(|sql| check_length(sql).is_ok()));
        for sql in [list("a"), list("(1)"), format!("SELECT 1{}", " + 1".repeat(PARTS / 2))] {
            assert!(matches!(check_length(&sql), Err(Error::TooManyParts { most: PARTS, .. })));
        }
        assert!(check_length(&format!("SELECT 1{}", " + 1".repeat(PARTS / 2 - 1))).is_ok());
    }
}
