//! `Device::find` where there is no GPU: it says why, and the host does the work.
//!
//! The test runs again in a child process that finds no loadable driver, also on a machine that has one.

use std::process::Command;
use std::{env, fs};

use tensor::{Device, Matrix, gelu};

const TEST: &str = "without_a_driver_the_host_does_the_work";

/// Says to the child that it is one.
const CHILD: &str = "TENSOR_TEST_CHILD";

#[test]
fn without_a_driver_the_host_does_the_work() {
    if env::var_os(CHILD).is_none() {
        let folder = env::temp_dir().join(format!("tensor-no-driver-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for name in ["libcuda.so", "libcuda.so.1"] {
            fs::write(folder.join(name), "this is no library").unwrap();
        }
        let child = Command::new(env::current_exe().unwrap())
            .args(["--exact", TEST, "--nocapture"])
            .env(CHILD, "1")
            .env("LD_LIBRARY_PATH", &folder)
            .output()
            .unwrap();
        fs::remove_dir_all(&folder).unwrap();
        let said = String::from_utf8_lossy(&child.stdout);
        assert!(
            child.status.success() && said.contains("1 passed"),
            "{said}{}",
            String::from_utf8_lossy(&child.stderr)
        );
        return;
    }
    let (device, which) = Device::find();
    let why = if cfg!(feature = "cuda") {
        "this machine has no CUDA driver (`libcuda.so.1`)"
    } else {
        "this program was built without the feature `cuda`"
    };
    assert_eq!(which, format!("in-process streams: {why}"));
    let (stream, x) = (device.stream("test").unwrap(), Matrix::from_fn(&device, 1, 2, |_, col| col as f32).unwrap());
    gelu(&stream, &x).unwrap();
    stream.synchronize().unwrap();
    let x = x.to_vec().unwrap();
    assert!(x[0] == 0.0 && (x[1] - 0.841_192).abs() < 1e-6, "{x:?}");
}
