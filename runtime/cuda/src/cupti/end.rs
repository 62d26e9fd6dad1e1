//! Ends CUPTI in this process (`cuptiFinalize`), or returns why it stays. A process that has started CUPTI launches
//! CUDA graphs more slowly, even when nothing is recorded any more.
//!
//! NVIDIA documents that this is safe at the end of a driver call, inside the callback for it. The collector's thread
//! therefore makes such a call itself and ends CUPTI in its callback, which involves no thread of the application.
//! CUPTI must not be ended
//!
//! * if a graph was launched while it traced kernels: that graph's next launch would fail with
//!   `CUDA_ERROR_LAUNCH_FAILED` (719) and make the context unusable (seen on an H100, driver 580);
//! * while the device may still execute work that it traced, because its buffers would be freed. Its own records show
//!   this: each call that launched or copied has a record of its work, with times. Nothing is synchronised for that;
//! * while another thread is in a call of CUPTI (`gate`), or if another tool is known to use it;
//! * in versions that crash when they are started again in a program with graphs. PyTorch's profiler ends CUPTI from
//!   CUDA 12.6 on.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::Mutex;
use std::time::Duration;

use super::abi::{Code, SUCCESS, Subscriber};
use super::gate;
use super::library::Cupti;
use crate::driver::Driver;
use warpline_core::environment;
use warpline_core::lock::lock;

/// `CUPTI_API_VERSION` of CUDA 12.8.
const OLDEST: u32 = 26;

/// `CUPTI_CB_DOMAIN_DRIVER_API`, `CUPTI_API_EXIT`.
const DRIVER_API: u32 = 1;
const EXIT: c_int = 1;

/// Variables that load a tool, which may use CUPTI, into a process; `./.` means none.
const INJECTIONS: [&str; 2] = ["CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"];

/// How long threads may take to leave CUPTI. A call takes some hundred ns, unless the machine is busy. Only the
/// collector waits.
const LEAVE: Duration = Duration::from_millis(250);

/// A driver call that changes nothing, with its number in `cupti_driver_cbid.h`.
type Call = (u32, fn(&Driver));
const CALLS: [Call; 2] = [(2, |driver| _ = driver.version()), (304, |driver| _ = driver.current_context())];

/// The reason why CUPTI stays until the process ends.
static STAYS: Mutex<Option<&'static str>> = Mutex::new(None);

type Finalize = unsafe extern "C" fn() -> Code;

#[derive(Clone, Copy)]
enum AtExit {
    Nothing,
    Finalize(Finalize),
    Finalized(Code),
}

thread_local! {
    static AT_EXIT: Cell<AtExit> = const { Cell::new(AtExit::Nothing) };
}

/// Prevents CUPTI from being ended in this process.
pub(super) fn keep(why: &'static str) {
    lock(&STAYS).get_or_insert(why);
}

/// Ends CUPTI. Everything must be disabled and all traced work read, and no graph may be registered by its ids in the
/// meantime.
///
/// # Errors
/// The reason why it stays. Nothing has changed then.
pub(super) fn end(cupti: &Cupti, subscriber: Subscriber) -> Result<(), String> {
    if let Some(why) = *lock(&STAYS) {
        return Err(why.to_owned());
    }
    let symbols = &cupti.symbols;
    let (Some(finalize), Some(enable)) = (symbols.finalize, symbols.enable_callback) else {
        return Err("this CUPTI cannot be finalized".to_owned());
    };
    if cupti.version < OLDEST {
        return Err("only CUPTI of CUDA 12.8 or newer can be finalized safely".to_owned());
    }
    let is_set = |name: &&&str| environment::var_os(name).is_some_and(|path| !path.is_empty() && path != "./.");
    if let Some(name) = INJECTIONS.iter().find(is_set) {
        return Err(format!("the tool that {name} names may use it"));
    }
    let driver = Driver::get().map_err(|error| error.to_string())?;
    if !gate::close(LEAVE) {
        return Err("another thread did not return from a call of CUPTI".to_owned());
    }
    let mut ended = None;
    for (number, call) in CALLS {
        // SAFETY: CUPTI returned the subscriber, which lives until CUPTI is ended.
        if unsafe { enable(1, subscriber, DRIVER_API, number) } != SUCCESS {
            continue;
        }
        AT_EXIT.set(AtExit::Finalize(finalize));
        call(driver);
        if let AtExit::Finalized(code) = AT_EXIT.replace(AtExit::Nothing) {
            ended = Some(code);
        }
        if ended == Some(SUCCESS) {
            return Ok(());
        }
        // SAFETY: as above.
        let _ = unsafe { enable(0, subscriber, DRIVER_API, number) };
        // The state after a failure is unknown, so there is no second attempt.
        if ended.is_some() {
            break;
        }
    }
    gate::reopen();
    Err(match ended {
        None => "CUPTI reported no driver call in which it could be finalized".to_owned(),
        Some(code) => format!("cuptiFinalize returned {code}"),
    })
}

/// Handles the subscriber's callbacks, which come only while CUPTI is being ended, for calls of all threads.
pub(super) unsafe extern "C" fn told(_: *mut c_void, domain: u32, _number: u32, about: *const c_void) {
    // A thread whose thread-local values are destroyed makes no such call.
    let _ = AT_EXIT.try_with(|at_exit| {
        let AtExit::Finalize(finalize) = at_exit.get() else { return };
        if domain != DRIVER_API || about.is_null() {
            return;
        }
        // SAFETY: for this domain CUPTI passes a `CUpti_CallbackData`, which begins with the site.
        if unsafe { about.cast::<c_int>().read() } == EXIT {
            // SAFETY: the function has no parameters, and NVIDIA documents this place for the call.
            at_exit.set(AtExit::Finalized(unsafe { finalize() }));
        }
    });
}
