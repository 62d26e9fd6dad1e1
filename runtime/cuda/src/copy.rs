//! Copies memory of the driver that the driver may free during the copy, through another thread's call.
//!
//! The operating system's kernel makes the copy: it returns an error for memory that is gone, whereas a direct read would end the process.
//! The copy is plain bytes, and the caller (`graphs`) must check whether they are valid.
#![allow(unsafe_code)]

use std::ffi::c_void;

/// Copies `count` values of `N` bytes each; none if the memory is gone or the kernel cannot read it.
pub(super) fn copy<const N: usize>(from: *const c_void, count: usize) -> Option<Box<[[u8; N]]>> {
    let mut copied = vec![[0; N]; count].into_boxed_slice();
    let to = copied.as_flattened_mut();
    (to.is_empty() || by_kernel(from, to) || is_refused() && through_a_pipe(from, to)).then_some(copied)
}

fn by_kernel(from: *const c_void, to: &mut [u8]) -> bool {
    let local = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    let remote = libc::iovec { iov_base: from.cast_mut(), iov_len: to.len() };
    // SAFETY: the kernel writes only to `to`, and returns an error for memory that is gone.
    let copied = unsafe { libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) };
    usize::try_from(copied) == Ok(to.len())
}

/// Returns whether the last call failed because a sandbox forbids it.
fn is_refused() -> bool {
    matches!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EPERM | libc::ENOSYS | libc::EACCES))
}

/// Copies by calls that every sandbox allows: the kernel copies what is written to a pipe.
fn through_a_pipe(from: *const c_void, to: &mut [u8]) -> bool {
    let mut ends = [0; 2];
    // SAFETY: there is room for two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } != 0 {
        return false;
    }
    let [read, write] = ends;
    let mut at = from.cast::<u8>();
    // A pipe holds at least a page.
    let is_copied = to.chunks_mut(4096).all(|chunk| {
        // SAFETY: the kernel reads the memory, and returns an error if it is gone.
        let written = unsafe { libc::write(write, at.cast(), chunk.len()) };
        at = at.wrapping_add(chunk.len());
        // SAFETY: the kernel writes only to the chunk.
        let copied = unsafe { libc::read(read, chunk.as_mut_ptr().cast(), chunk.len()) };
        usize::try_from(written) == Ok(chunk.len()) && copied == written
    });
    for end in ends {
        // SAFETY: ours, and not used again.
        unsafe { libc::close(end) };
    }
    is_copied
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Maps two pages and unmaps the second one.
    fn page() -> *mut c_void {
        const SIZE: usize = 4096;
        // SAFETY: the mapping is new, and nothing uses its second half, which is unmapped.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let page = libc::mmap(std::ptr::null_mut(), 2 * SIZE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
            assert_ne!(page, libc::MAP_FAILED);
            assert_eq!(libc::munmap(page.wrapping_byte_add(SIZE), SIZE), 0);
            page
        }
    }

    #[test]
    fn what_is_there_is_copied_and_what_is_gone_is_an_error() {
        let numbers: Vec<u64> = (0..3_000).collect();
        let from = numbers.as_ptr().cast();
        let expected: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
        assert_eq!(copy::<8>(from, numbers.len()).expect("it is there").as_flattened(), expected);
        let mut piped = vec![0; expected.len()];
        assert!(through_a_pipe(from, &mut piped));
        assert_eq!(piped, expected);
        let page = page();
        for (offset, count, is_there) in [(0, 512, true), (8, 512, false), (4096, 1, false)] {
            let from = page.wrapping_byte_add(offset).cast_const();
            assert_eq!(copy::<8>(from, count).is_some(), is_there, "{count} from {offset}");
            assert_eq!(through_a_pipe(from, &mut vec![0; 8 * count]), is_there, "{count} from {offset}");
        }
        assert_eq!(copy::<8>(std::ptr::null(), 0).expect("nothing").len(), 0);
        assert!(copy::<8>(std::ptr::null(), 1).is_none());
    }

    #[test]
    #[ignore = "says what a copy costs"]
    fn cost() {
        let numbers = [1_usize; 4];
        let from = numbers.as_ptr().cast();
        for (name, pipe) in [("kernel", false), ("pipe", true)] {
            let begin = std::time::Instant::now();
            for _ in 0..100_000 {
                let mut to = [0; 32];
                assert!(if pipe { through_a_pipe(from, &mut to) } else { by_kernel(from, &mut to) });
            }
            println!("{name}: {} ns", begin.elapsed().as_nanos() / 100_000);
        }
    }
}
