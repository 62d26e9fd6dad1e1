//! Writes the table that `catalog_names.rs` includes: a thousand names, good and bad, each with what the rules say of
//! it while the compiler evaluates them.
//!
//! The names are made by a fixed generator, so that every build checks the same ones.

use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

const NAMESPACES: [&str; 6] = ["demo", "vyre.cuda", "a", "x_1.y2", "d", "demo.deep.er"];
const PIECES: [&str; 24] = [
    "a", "z9", "_", "add", "mat_mul", "0", "codegen", ".", "..", ".b", "c.", "", "A", "MatMul", "::", "/", " ", "-",
    "ß", "é", "\u{202e}", "\0", "\n", "日本",
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut below = |limit: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % limit as u64) as usize
    };
    let mut table = String::from("[\n");
    for _ in 0..1_000 {
        let namespace = NAMESPACES[below(NAMESPACES.len())];
        let mut name = match below(4) {
            0 => String::new(),
            1 => NAMESPACES[below(NAMESPACES.len())].to_owned(),
            _ => format!("{namespace}."),
        };
        // Mostly from the good pieces, so that good names are not rare.
        let pieces = if below(2) == 0 { 7 } else { PIECES.len() };
        for _ in 0..below(6) {
            name.push_str(PIECES[below(pieces)]);
        }
        if below(12) == 0 {
            name.push_str(&"long".repeat(20 + below(20)));
        }
        // `escape_default` and not `Debug`, which writes `\0` where a digit may follow.
        let arguments = format!("\"{namespace}\", \"{}\"", name.escape_default());
        let _ = writeln!(table, "    ({arguments}, check({arguments}), suggest({arguments})),");
    }
    table.push_str("]\n");
    let out = env::var_os("OUT_DIR").expect("Cargo sets OUT_DIR");
    fs::write(Path::new(&out).join("names.rs"), table).expect("the folder is there");
}
