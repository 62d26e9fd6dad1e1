//! What the driver keeps for each thread: its contexts, its capture mode. Nothing here has a destructor, so that calls
//! which come while a thread or the process ends are served like all others.

use std::cell::Cell;

use crate::capture::Mode;
use crate::code::Code;
use crate::table::Handle;

/// The contexts that a thread has pushed, the current one last.
#[derive(Clone, Copy)]
struct Stack {
    contexts: [Handle; 32],
    depth: usize,
}

thread_local! {
    static TID: Cell<i32> = const { Cell::new(0) };
    static STACK: Cell<Stack> = const { Cell::new(Stack { contexts: [0; 32], depth: 0 }) };
    static MODE: Cell<Mode> = const { Cell::new(Mode::Global) };
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
}

/// The thread's number, as `gettid` gives it.
pub fn tid() -> i32 {
    if TID.get() == 0 {
        // SAFETY: gettid has no preconditions.
        TID.set(unsafe { libc::gettid() });
    }
    TID.get()
}

/// The current context; 0 for none.
pub fn current() -> Handle {
    let stack = STACK.get();
    stack.depth.checked_sub(1).and_then(|top| stack.contexts.get(top).copied()).unwrap_or(0)
}

/// Makes a context the current one and keeps the one before for `pop`.
pub fn push(context: Handle) -> Result<(), Code> {
    let mut stack = STACK.get();
    *stack.contexts.get_mut(stack.depth).ok_or(Code::OUT_OF_MEMORY)? = context;
    stack.depth += 1;
    STACK.set(stack);
    Ok(())
}

/// Takes the current context off.
pub fn pop() -> Result<Handle, Code> {
    let mut stack = STACK.get();
    let context = current();
    stack.depth = stack.depth.checked_sub(1).ok_or(Code::INVALID_CONTEXT)?;
    STACK.set(stack);
    Ok(context)
}

/// Replaces the current context; 0 takes it off.
pub fn set_current(context: Handle) -> Result<(), Code> {
    let _ = pop();
    if context == 0 { Ok(()) } else { push(context) }
}

/// What this thread may do while others capture.
pub fn mode() -> Mode {
    MODE.get()
}

/// Sets it and returns what it was.
pub fn exchange_mode(mode: Mode) -> Mode {
    MODE.replace(mode)
}

/// Whether a host function of a stream runs on this thread: it may not call the driver.
pub fn is_in_host_function() -> bool {
    IN_HOST_FUNCTION.get()
}

/// Says that this thread is there to run a host function.
pub fn enter_host_function() {
    IN_HOST_FUNCTION.set(true);
}
