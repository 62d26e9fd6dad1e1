//! The command line: names of benches, and `--NAME=VALUE` for each of their sizes.

use std::collections::BTreeMap;

/// What was asked for.
#[derive(Default)]
pub struct Options {
    pub benches: Vec<String>,
    pub wants_help: bool,
    sizes: BTreeMap<String, u64>,
    /// Set in the processes that `overlap` starts: the number of connections that this one has.
    pub connections: Option<u64>,
    /// Set in the processes that `live` starts: the shape that this one steps.
    pub dim: Option<u64>,
    /// Set in the processes that `first` starts: the program that this one runs.
    pub program: Option<u64>,
    /// Set as above: whether ends are eager.
    pub is_eager: bool,
}

const SIZES: [&str; 6] = ["rounds", "zones", "seconds", "cycles", "threads", "core"];

impl Options {
    /// # Errors
    /// The first argument that is none.
    pub fn parse(arguments: impl Iterator<Item = String>) -> Result<Options, String> {
        let mut options = Options::default();
        for argument in arguments {
            if argument == "--help" || argument == "-h" {
                options.wants_help = true;
                continue;
            }
            let Some(size) = argument.strip_prefix("--") else {
                options.benches.push(argument);
                continue;
            };
            let (name, value) = size.split_once('=').ok_or_else(|| format!("write `{argument}=NUMBER`"))?;
            let value = value.parse().map_err(|_| format!("`{argument}`: `{value}` is not a whole number"))?;
            match name {
                "connections" => options.connections = Some(value),
                "dim" => options.dim = Some(value),
                "program" => options.program = Some(value),
                "eager" => options.is_eager = value != 0,
                _ if SIZES.contains(&name) => drop(options.sizes.insert(name.to_owned(), value)),
                _ => return Err(format!("there is no size `--{name}`; there are --{}", SIZES.join(", --"))),
            }
        }
        Ok(options)
    }

    /// A size that has no default.
    pub fn given(&self, name: &str) -> Option<u64> {
        self.sizes.get(name).copied()
    }

    /// A size, at least 1.
    pub fn size(&self, name: &str, default: u64) -> u64 {
        self.sizes.get(name).copied().unwrap_or(default).max(1)
    }
}
