//! Ends CUPTI in this process (`cuptiFinalize`), or says why it stays: a process in which it has been begun launches CUDA graphs more
//! slowly, also when nothing is recorded any more.
//!
//! NVIDIA calls it safe at the end of a call of the driver's, inside the callback that tells of it. So the collector's thread makes
//! such a call itself, and ends CUPTI in its callback; no thread of the application's is made to do it. CUPTI must not be ended
//!
//! * where a graph was launched while it traced kernels: that graph's next launch would fail with `CUDA_ERROR_LAUNCH_FAILED` (719) and
//!   take the context with it (seen on an H100, driver 580);
//! * where the device may still be at work on something that it traced, because its buffers would go. This is known from its own
//!   records: each call that launched or copied has its work's record, with times. Nothing is ever synchronised for that;
//! * while another thread is in a call of CUPTI (`gate`), or where another tool is known to use it;
//! * by versions that crash when they are begun again in a program with graphs. PyTorch's profiler ends CUPTI from CUDA 12.6 on.

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

/// Variables by which a tool comes into a process that may use CUPTI; `./.` stands for none.
const INJECTIONS: [&str; 2] = ["CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"];

/// How long threads may take to leave CUPTI: a call takes some hundred ns, unless the machine has other things to do. Nobody but the
/// collector waits.
const LEAVE: Duration = Duration::from_millis(250);

/// A call of the driver's that changes nothing, by its number in `cupti_driver_cbid.h`.
type Call = (u32, fn(&Driver));
const CALLS: [Call; 2] = [(2, |driver| _ = driver.version()), (304, |driver| _ = driver.current_context())];

/// Why CUPTI stays for as long as the process.
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

/// CUPTI must not be ended any more in this process.
pub(super) fn keep(why: &'static str) {
    lock(&STAYS).get_or_insert(why);
}

/// Ends CUPTI. Nothing is on, all that was traced has been read, and no graph is registered by its ids meanwhile.
///
/// # Errors
/// Why it stays; then nothing has changed.
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
        // SAFETY: the subscriber is the one that CUPTI gave, and lives until CUPTI is ended.
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
        // What it leaves when it fails is not known: it is not asked twice.
        if ended.is_some() {
            break;
        }
    }
    gate::reopen();
    Err(match ended {
        None => "CUPTI reported no driver call in which it could be finalized".to_owned(),
        Some(code) => format!("cuptiFinalize answers {code}"),
    })
}

/// The subscriber's callback: it is told of calls only while CUPTI is being ended, those of all threads.
pub(super) unsafe extern "C" fn told(_: *mut c_void, domain: u32, _number: u32, about: *const c_void) {
    // A thread that ends has no such call of ours.
    let _ = AT_EXIT.try_with(|at_exit| {
        let AtExit::Finalize(finalize) = at_exit.get() else { return };
        if domain != DRIVER_API || about.is_null() {
            return;
        }
        // SAFETY: for this domain CUPTI gives a `CUpti_CallbackData`, which begins with the site.
        if unsafe { about.cast::<c_int>().read() } == EXIT {
            // SAFETY: it takes nothing; this is where NVIDIA wants it to be called.
            at_exit.set(AtExit::Finalized(unsafe { finalize() }));
        }
    });
}
