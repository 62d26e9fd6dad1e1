//! The command as a process of its own.

use std::process::{Command, Output};

/// The command in an environment from which nothing leads to a cloud.
pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpline-ranks"));
    command.args(args);
    clean(&mut command);
    command
}

/// Runs it to its end where the process may have `kib` KiB of addresses, and measures its CPU time on standard error as `time -p` does.
pub fn within(kib: u64, args: &[&str]) -> Output {
    let mut command = Command::new("bash");
    let script = "ulimit -v \"$1\"; shift; time -p \"$@\"";
    command.args(["-c", script, "bash", &kib.to_string(), env!("CARGO_BIN_EXE_warpline-ranks")]).args(args);
    clean(&mut command);
    command.output().unwrap()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_owned()).unwrap()
}

fn clean(command: &mut Command) {
    let is_of_cloud =
        |name: &str| ["AWS_", "AZURE_", "GOOGLE_", "WARPLINE"].iter().any(|begin| name.starts_with(begin));
    std::env::vars().filter(|(name, _)| is_of_cloud(name)).for_each(|(name, _)| {
        command.env_remove(name);
    });
    // Nothing listens there.
    for name in ["AWS_ENDPOINT_URL", "AWS_METADATA_ENDPOINT", "GOOGLE_BASE_URL", "AZURE_ENDPOINT", "IDENTITY_ENDPOINT"]
    {
        command.env(name, "http://127.0.0.1:9");
    }
    command.env("GCE_METADATA_HOST", "127.0.0.1:9").env("GCE_METADATA_IP", "127.0.0.1:9");
}
