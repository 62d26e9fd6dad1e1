//! Runs every case in `pass` and in `fail`. The same set runs with feature `enable` and without it, and must give the same
//! errors: a mark is checked whether or not it records.
//!
//! `TRYBUILD=overwrite cargo test -p warpline-ui-tests` writes the `.stderr` files anew; read them before you commit them.

#[test]
fn ui() {
    let cases = trybuild::TestCases::new();
    cases.pass("pass/*.rs");
    cases.compile_fail("fail/*.rs");
}
