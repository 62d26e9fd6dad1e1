//! Nothing: the manifest is what counts. Cargo compiles another crate once for each set of features that the selected packages turn
//! on. The commands of `cargo xtask test` that select some packages select this one too, so that they share what other commands
//! have built. No package depends on it.
