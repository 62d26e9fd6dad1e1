//! Runs every case in `pass` and in `fail`. The same set runs with feature `enable` and without it, and must give the same
//! errors: a mark is checked whether or not it records.
//!
//! `cargo test -p warpline-ui-tests --features enable` builds the cases with it: trybuild hands this package's own features on,
//! and not those of `warpline`. `WARPLINE_UI_TESTS=on` or `=off` makes the case `pass/records.rs` fail where that did not work.
//! `TRYBUILD=overwrite cargo test -p warpline-ui-tests` writes the `.stderr` files anew; read them before you commit them.

#[test]
fn ui() {
    let cases = trybuild::TestCases::new();
    cases.pass("pass/*.rs");
    cases.compile_fail("fail/*.rs");
}
