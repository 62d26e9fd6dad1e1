//! A static library that a C compiler links: which ranges the catalog of the program has then, as docs/catalog.md states it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::catalog_crates::programs::{root, run, target};

/// A library of C functions: one runs a marked function, another one is never called.
const LIBRARY: &str = r#"warpline::namespace!("static", "a static library");

mod called {
    /// Runs.
    #[warpline::host_zone("static.called")]
    #[inline(never)]
    fn run() {}

    #[unsafe(no_mangle)]
    pub extern "C" fn static_run() {
        run();
    }
}

mod uncalled {
    /// Is never called by the program.
    #[warpline::host_zone("static.uncalled")]
    #[inline(never)]
    fn rest() {}

    #[unsafe(no_mangle)]
    pub extern "C" fn static_rest() {
        rest();
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn static_print() {
    for range in warpline::catalog() {
        println!("{}", range.name());
    }
}
"#;

const PROGRAM: &str =
    "void static_run(void);\nvoid static_print(void);\nint main(void) { static_run(); static_print(); return 0; }\n";

/// What Rust's standard library needs of the system.
const SYSTEM: [&str; 6] = ["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl"];

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("it is in a folder")).expect("the target folder is writable");
    if fs::read_to_string(path).is_ok_and(|written| written == text) {
        return;
    }
    fs::write(path, text).expect("the target folder is writable");
}

/// Builds the library, and returns the folder of the program and the archive.
fn library() -> (PathBuf, PathBuf) {
    let folder = target().join("static");
    let manifest = format!(
        "[workspace]\n[package]\nname = \"static_marks\"\nversion = \"1.0.0\"\nedition = \"2024\"\n[lib]\ncrate-type = [\"staticlib\"]\n\
         [profile.dev]\ndebug = false\ncodegen-units = 256\n[dependencies]\nwarpline = {{ path = {:?} }}\n",
        root().join("runtime/warpline")
    );
    write(&folder.join("Cargo.toml"), &manifest);
    write(&folder.join("src/lib.rs"), LIBRARY);
    write(&folder.join("main.c"), PROGRAM);
    // The same versions as everything else, so that nothing has to be fetched.
    fs::copy(root().join("Cargo.lock"), folder.join("Cargo.lock")).expect("the target folder is writable");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--offline", "--target-dir"])
        .arg(target())
        .current_dir(&folder)
        .output()
        .expect("cargo runs");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let archive = target().join("debug/libstatic_marks.a");
    (folder, archive)
}

#[test]
fn a_c_program_has_all_ranges_of_a_static_library_that_it_links_as_a_whole() {
    let (folder, archive) = library();
    let archive = archive.to_str().expect("UTF-8");
    let names = |program: &str, library: &[&str]| -> Vec<String> {
        let program = folder.join(program);
        let linked = Command::new("cc")
            .arg(folder.join("main.c"))
            .args(library)
            .args(SYSTEM)
            .arg("-o")
            .arg(&program)
            .env("LC_ALL", "C")
            .output()
            .expect("a C compiler runs");
        assert!(linked.status.success(), "{}", String::from_utf8_lossy(&linked.stderr));
        let mut names: Vec<_> =
            String::from_utf8(run(&program).stdout).expect("text").lines().map(str::to_owned).collect();
        names.sort_unstable();
        names
    };
    // The linker takes from an archive only the object files that the program refers to.
    assert_eq!(names("parts", &[archive]), ["static.called"]);
    let whole = ["-Wl,--whole-archive", archive, "-Wl,--no-whole-archive"];
    assert_eq!(names("whole", &whole), ["static.called", "static.uncalled"]);
}
