//! A program with more rights than the user who starts it: set-user-ID, set-group-ID, capabilities. The environment is the user's, so
//! nothing in it counts.
//!
//! As root, a copy of this test that belongs to another user and has the set-user-ID bit is started by a third one. As another user,
//! the copy has the set-group-ID bit and belongs to a supplementary group. Where neither can be had, a line on standard error says so.

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use warpline::{HostStream, Session};
use warpline_tests::{empty_folder, names};

use crate::harness::nvtx;

warpline::range! {
    STEP = "stub.privileges.step": "A step.";
}

const TEST: &str = "privileges::a_program_with_raised_privileges_ignores_its_environment";

/// Names the folder to the process that is started for it.
const FOLDER: &str = "WARPLINE_TEST_FOLDER";

/// Users that own nothing else: the owner of the copy, and whoever starts it.
const OWNER: u32 = 65_533;
const STARTER: u32 = 65_534;

/// How a process gets rights that its user has not.
#[derive(Clone, Copy, Debug)]
enum Way {
    SetUser,
    SetGroup,
}

/// In the process of its own: records as the program says, or as its user does.
fn run_if_started() -> bool {
    let Some(folder) = env::var_os(FOLDER) else { return false };
    // SAFETY: the call only reads what the kernel gave the process.
    let is_secure = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    let own = format!("perfetto={}", Path::new(&folder).join("program.{rank}.pftrace").display());
    for _ in 0..2 {
        let session = Session::from_env_or(&own);
        let stream = HostStream::new("compute");
        drop(STEP.zone(&stream));
        stream.synchronize().expect("nothing panics");
        assert_eq!(session.finish().recorded, 1);
    }
    #[cfg(feature = "cupti")]
    drop(Session::builder().kernels(true).start().expect("no other session").finish());
    let maps = fs::read_to_string("/proc/self/maps").expect("/proc is mounted");
    let loaded =
        ["nvtx.so", "cupti.so"].map(|name| maps.contains(&Path::new(&folder).join(name).display().to_string()));
    println!("\nsecure {is_secure}, nvtx {}, cupti {}", loaded[0], loaded[1]);
    true
}

/// How it can be done here, or why it cannot. The copy belongs to its owner then, and has no bit yet.
fn way(folder: &Path, copy: &Path) -> Result<Way, String> {
    let status = fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    if !status.lines().any(|line| line.split_whitespace().eq(["NoNewPrivs:", "0"])) {
        return Err("this process may not gain privileges (no_new_privs)".to_owned());
    }
    let path = std::ffi::CString::new(folder.as_os_str().as_bytes()).expect("no NUL");
    // SAFETY: all zeros are a valid value of the structure, which outlives the call; the path ends with a NUL.
    let flags = unsafe {
        let mut found: libc::statvfs = std::mem::zeroed();
        assert_eq!(libc::statvfs(path.as_ptr(), &raw mut found), 0);
        found.f_flag
    };
    if flags & (libc::ST_NOSUID | libc::ST_NOEXEC) != 0 {
        let folder = folder.display();
        return Err(format!("`{folder}` is mounted with `nosuid` or `noexec`; set TMPDIR to another folder"));
    }
    let mut groups = [0; 256];
    // SAFETY: the calls take nothing but a place for so many groups.
    let (user, group, count) =
        unsafe { (libc::geteuid(), libc::getegid(), libc::getgroups(groups.len() as i32, groups.as_mut_ptr())) };
    if user == 0 {
        // A user namespace need not have these users.
        let given = chown(copy, Some(OWNER), Some(OWNER));
        return given.map(|()| Way::SetUser).map_err(|error| format!("there is no user {OWNER} here: {error}"));
    }
    let others = groups.iter().take(usize::try_from(count).unwrap_or(0)).find(|other| **other != group);
    let other = others
        .ok_or("this user is not root and is in no second group; run the test as root, or add the user to a group")?;
    let given = chown(copy, None, Some(*other));
    given.map(|()| Way::SetGroup).map_err(|error| format!("the group {other} cannot be given: {error}"))
}

/// Starts the copy with an environment that asks for all that there is. Gives what it prints on both streams.
fn start(program: &Path, folder: &Path, way: Way) -> (String, String) {
    let mut command = Command::new(program);
    command
        .args(["--exact", TEST, "--nocapture", "--test-threads=1"])
        .current_dir(folder)
        .env(FOLDER, folder)
        .env("WARPLINE", format!("perfetto={}", folder.join("user.{rank}.pftrace").display()))
        .env("RANK", "7")
        .env("NVTX_INJECTION64_PATH", folder.join("nvtx.so"))
        .env("WARPLINE_CUPTI", folder.join("cupti.so"));
    if let Way::SetUser = way {
        command.uid(STARTER).gid(STARTER);
    }
    let output = command.output().expect("the copy can be started");
    let [stdout, stderr] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).expect("UTF-8"));
    assert!(output.status.success(), "{way:?}: {}\n{stdout}\n{stderr}", output.status);
    (stdout, stderr)
}

/// A folder in which everybody may write, with this test and two libraries in it.
fn folder_with_copies() -> (PathBuf, PathBuf) {
    let folder = empty_folder("privileges");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).expect("it is ours");
    let program = folder.join("program");
    // By another process: what this one writes is open in each child that another test starts at that moment, and does not start then.
    let own = env::current_exe().expect("the test's own path");
    assert!(Command::new("cp").args([&own, &program]).status().expect("there is `cp`").success());
    for name in ["nvtx.so", "cupti.so"] {
        fs::copy(nvtx::library(), folder.join(name)).expect("there is room");
        fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o755)).expect("it is ours");
    }
    (folder, program)
}

#[test]
fn a_program_with_raised_privileges_ignores_its_environment() {
    if run_if_started() {
        return;
    }
    let (folder, program) = folder_with_copies();
    let traces = || names(&folder).into_iter().filter(|name| name.ends_with(".pftrace")).collect::<Vec<_>>();
    let way = match way(&folder, &program) {
        Ok(way) => way,
        Err(why) => {
            fs::remove_dir_all(&folder).expect("it is ours");
            // Past the test harness, which would keep it.
            let _ = writeln!(io::stderr(), "\nNOT TESTED: {TEST}: {why}");
            return;
        }
    };
    let set_mode = |mode| fs::set_permissions(&program, fs::Permissions::from_mode(mode)).expect("it is ours");

    // The same program without the bit does what its user says.
    set_mode(0o755);
    let (stdout, stderr) = start(&program, &folder, way);
    let has_cupti = cfg!(feature = "cupti");
    assert!(stdout.contains(&format!("secure false, nvtx true, cupti {has_cupti}")), "{stdout}\n{stderr}");
    assert_eq!(traces(), ["user.7.pftrace"]);
    fs::remove_file(folder.join("user.7.pftrace")).expect("it is there");

    set_mode(match way {
        Way::SetUser => 0o4755,
        Way::SetGroup => 0o2755,
    });
    let (stdout, stderr) = start(&program, &folder, way);
    assert!(stdout.contains("secure true, nvtx false, cupti false"), "{way:?}: {stdout}\n{stderr}");
    assert_eq!(traces(), ["program.0.pftrace"], "{stdout}\n{stderr}");
    assert_eq!(stderr.matches("`WARPLINE` is ignored").count(), 1, "{stderr}");
    if let Way::SetUser = way {
        assert_eq!(fs::metadata(folder.join("program.0.pftrace")).expect("it is there").uid(), OWNER);
    }
    fs::remove_dir_all(&folder).expect("it is ours");
}
