//! The arguments of `warpline` and `cargo warpline`, which [`commands`](crate::commands) carries out.
//!
//! `command` has the commands of `warpline`, `cargo` those of `cargo warpline`, and `values` the values that both have
//! in common: formats, times, sizes. This file has the help in which the commands are grouped, and what happens when
//! arguments are wrong.

mod cargo;
mod command;
mod values;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser};

use crate::output::printable;

pub(crate) use cargo::{Build, Cargo, CargoCommand};
pub(crate) use command::Command;
pub(crate) use values::{
    ComparisonFormat, DoctorFormat, FindingsFormat, Format, JoinBy, ReplyFormat, ReportFormat, Serving, Show,
};

/// Reads the GPU ranges that warpline's marks leave in a binary, without running it; finds the ranks that came late to
/// collectives, from the traces of several ranks; adds zones to the kernels of CUDA graphs in a trace of PyTorch's
/// profiler; converts the file of a flight recorder to a trace; queries and controls programs that run with
/// `WARPLINE=control`; and says what works on this host.
#[derive(Parser)]
#[command(name = "warpline", bin_name = "warpline", version, arg_required_else_help = true)]
#[command(
    after_help = "Exit status: 0 done, 1 faults found (`check`, `doctor`) or slower than the limit (`compare`), 2 wrong usage, unreadable file, no catalog, no collective, \
                  nothing to annotate, nothing to recover, a program that cannot be reached or that ended meanwhile, zones that did not come in time (`arm`), \
                  128 plus the number of the signal that ended the command.\n\n\
                  In the name of an output file, `{pid}` stands for the process id, `{rank}` for the rank in the job (0 without \
                  a launcher), `{host}` for the machine's name, and `{{` for a brace. With `record` and `dump`, they \
                  are those of the program that is asked; otherwise, of this command. With `recover`, `{pid}` is the process \
                  that was recorded."
)]
pub(crate) struct Warpline {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands by what the user has, in the order of the help.
const GROUPS: [(&str, &[&str]); 6] = [
    ("You have a binary:", &["catalog", "check"]),
    (
        "You have traces, or the file of a flight recorder:",
        &["open", "report", "compare", "query", "stragglers", "annotate", "recover"],
    ),
    ("You have the tables of many ranks, from `ranks=FOLDER`:", &["ranks"]),
    ("A program runs with `WARPLINE=control` (Linux):", &["ps", "status", "record", "top", "arm", "dump", "stop"]),
    ("A new machine, or something does not work:", &["doctor"]),
    ("Other:", &["completions", "man", "help"]),
];

impl Warpline {
    /// Parses the arguments of the process. An invalid argument ends the process.
    pub(crate) fn from_process() -> Warpline {
        parse(Warpline::grouped())
    }

    /// Returns the definition.
    pub(crate) fn definition() -> clap::Command {
        Warpline::command()
    }

    /// Returns the definition, with a help in which the commands are grouped.
    pub(crate) fn grouped() -> clap::Command {
        let mut command = Warpline::command();
        command.build();
        let about = |name: &str| {
            let command = command.find_subcommand(name);
            command.and_then(clap::Command::get_about).map(ToString::to_string).unwrap_or_default()
        };
        let mut groups = String::new();
        for (head, names) in GROUPS {
            let lines: String = names.iter().map(|name| format!("  {name:<11} {}\n", about(name))).collect();
            groups += &format!("{head}\n{lines}\n");
        }
        let template = format!(
            "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}Options:\n{{options}}{{after-help}}"
        );
        Warpline::command().help_template(template)
    }
}

/// Parses the arguments of the process, and ends it if they are invalid.
fn parse<T: FromArgMatches>(definition: clap::Command) -> T {
    let matches = definition.clone().try_get_matches();
    matches.and_then(|matches| T::from_arg_matches(&matches)).unwrap_or_else(|error| refuse(definition, &error))
}

/// Prints the error as clap does. Clap quotes arguments, so characters that control the terminal are escaped first.
fn refuse(definition: clap::Command, error: &clap::Error) -> ! {
    let shown = std::env::args_os().map(|argument| printable(&argument.to_string_lossy()));
    match definition.try_get_matches_from(shown) {
        Err(shown) => shown.exit(),
        // The lossy conversion made the arguments valid. Such an error quotes nothing.
        Ok(_) if error.kind() == ErrorKind::InvalidUtf8 => error.exit(),
        Ok(_) => {
            crate::output::complain(
                "error: an argument contains characters that cannot be shown; see `warpline --help`",
            );
            std::process::exit(2)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_has_every_command_once_in_its_group() {
        let mut command = Warpline::grouped();
        command.build();
        let mut all: Vec<_> = command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
        let help = command.render_help().to_string();
        let mut listed: Vec<_> = GROUPS.iter().flat_map(|(_, names)| *names).map(|name| (*name).to_owned()).collect();
        for (name, about) in command.get_subcommands().map(|command| (command.get_name(), command.get_about())) {
            let line = format!("  {name:<11} {}\n", about.expect("it says what it does"));
            assert_eq!(help.matches(&line).count(), 1, "{name}: {help}");
        }
        all.sort_unstable();
        listed.sort_unstable();
        assert_eq!(all, listed);
        let own = command.find_subcommand_mut("record").expect("it is there").render_help().to_string();
        assert!(own.contains("--kernels") && !own.contains("You have a binary"), "{own}");
    }

    #[test]
    fn the_definitions_are_sound() {
        Warpline::command().debug_assert();
        Cargo::command().debug_assert();
    }
}
