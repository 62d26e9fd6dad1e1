//! `warpline-attack`: runs the attacks for a given time and prints a table. `cargo xtask attack` calls it; as `worker …` it is a process
//! that is attacked.

#[cfg(target_os = "linux")]
mod table;

#[cfg(target_os = "linux")]
#[global_allocator]
static MEMORY: warpline_attack::Counting = warpline_attack::Counting;

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    table::main()
}

#[cfg(not(target_os = "linux"))]
fn main() -> std::process::ExitCode {
    eprintln!("error: the attacks are for Linux");
    std::process::ExitCode::from(2)
}
