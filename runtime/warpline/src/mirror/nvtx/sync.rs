//! Waits for semaphores and signals of host threads, as ranges of a domain of their own: `wait NAME` and `signal NAME`, with the value as
//! payload.
//!
//! NVTX's module for synchronization objects does not fit: it knows locks, which a thread acquires and the same thread releases, and has no
//! place for a value. Here one thread signals what others wait for.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_void};
use std::sync::OnceLock;

use super::abi::*;
use super::payload::{Bytes, Entry, register_schema};
use super::pushes;
use super::table;
use warpline_core::fields;
use warpline_core::observer::{SyncCall, SyncKind};
use warpline_core::reentrancy::outside;

/// The domain, which has no ranges of the catalog.
const DOMAIN: &CStr = c"warpline.timeline";

/// The largest name in bytes, with the kind before it and a NUL after it.
const NAME: usize = 128;

/// The domain as the tool knows it.
struct SyncDomain {
    handle: nvtxDomainHandle_t,
    /// The tool's number of the payload; none if it accepts none.
    schema: Option<u64>,
}

// SAFETY: the handle is the tool's, and good on every thread.
unsafe impl Send for SyncDomain {}
// SAFETY: as above.
unsafe impl Sync for SyncDomain {}

impl SyncDomain {
    /// Returns the domain, and creates it the first time. The caller has entered the tool.
    fn get() -> &'static SyncDomain {
        static DOMAIN_OF_TOOL: OnceLock<SyncDomain> = OnceLock::new();
        DOMAIN_OF_TOOL.get_or_init(SyncDomain::create)
    }

    #[cold]
    fn create() -> SyncDomain {
        let handle = table::create_domain(DOMAIN);
        for (kind, name) in [(SyncKind::Wait, c"wait"), (SyncKind::Signal, c"signal")] {
            table::name_category(handle, category(kind), name);
        }
        let entries = [
            (c"value", Entry::U64, c"The value that is waited for or signalled"),
            (c"values", Entry::U64, c"The number of values in the call"),
        ];
        let schema = register_schema(handle, c"warpline.semaphore", entries.into_iter());
        SyncDomain { handle, schema: Some(schema).filter(|schema| *schema != 0) }
    }
}

const fn category(kind: SyncKind) -> u32 {
    kind as u32 + 1
}

/// Begins the range of a call. Returns whether the tool has begun it; a refused range must not be popped. It allocates nothing after the first
/// one.
pub(super) fn push(call: &SyncCall<'_>) -> bool {
    let domain = SyncDomain::get();
    let name = name(call);
    let message = (NVTX_MESSAGE_TYPE_ASCII, name.as_ptr().cast::<c_void>());
    let mut attributes = nvtxEventAttributes_t::new(message, category(call.kind), None);
    let mut bytes = Bytes::<1>::new();
    bytes.number(call.value);
    bytes.number(call.values as u64);
    let payload = domain.schema.map(|schema| [bytes.of_schema(schema)]);
    let attributes = payload.as_ref().map_or(&raw const attributes, |payload| attributes.with_payloads(payload));
    let Some(push) = table::domain_range_push_ex() else { return false };
    // SAFETY: the attributes, and what they point to, outlive the call; the handle is the tool's own.
    pushes::has_begun(outside(|| unsafe { push(domain.handle, attributes) }))
}

/// Ends the range that this thread began last.
pub(super) fn pop() {
    if let Some(pop) = table::domain_range_pop() {
        // SAFETY: the handle is the tool's own.
        outside(|| unsafe { pop(SyncDomain::get().handle) });
    }
}

/// Returns the range's name, which ends in a NUL. A NUL in the semaphore's name ends it, and a long name is cut.
fn name(call: &SyncCall<'_>) -> [u8; NAME] {
    let mut bytes = [0; NAME];
    let kind = call.kind.as_str();
    let room = NAME - kind.len() - 2;
    bytes[..kind.len()].copy_from_slice(kind.as_bytes());
    bytes[kind.len()] = b' ';
    let text = fields::cut(call.semaphore, room);
    bytes[kind.len() + 1..][..text.len()].copy_from_slice(text.as_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_is_cut_between_characters_and_ends_in_a_nul() {
        let long = "ß".repeat(100);
        for (semaphore, expected) in
            [("weights", "signal weights".to_owned()), (&long, format!("signal {}", "ß".repeat(60)))]
        {
            let name = name(&SyncCall { kind: SyncKind::Signal, semaphore, value: 1, values: 1 });
            let text = CStr::from_bytes_until_nul(&name).expect("it ends");
            assert_eq!(text.to_str(), Ok(expected.as_str()));
        }
    }
}
