//! The data of a range that a tool gets: its domain, its name as a registered string, its category and its color. The tool gets it once:
//! [`register_all`] passes the catalog when the tool is attached, and a range outside the catalog follows with its first zone.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_void};
use std::sync::atomic::{Ordering, fence};
use std::sync::{Mutex, OnceLock};

use super::abi::*;
use super::message::MessageSchemas;
use super::payload::{Entry, FieldBytes, FieldSet, Schemas, register_schema};
use super::pushes;
use super::table;
use warpline_core::catalog::{Kind, RangeSpec, catalog};
use warpline_core::collective::Message;
use warpline_core::fields::Fields;
use warpline_core::lock::lock;
use warpline_core::ranges::RangeTable;
use warpline_core::reentrancy::outside;

/// The ranges that the tool knows, by their numbers; none before a range's first mirrored zone.
static RANGES: RangeTable<OnceLock<Box<NvtxRange>>> = RangeTable::new();

/// A range that the tool knows.
pub(super) struct NvtxRange {
    domain: nvtxDomainHandle_t,
    label: &'static CStr,
    /// The handle of the registered string; null if the tool registers none.
    message: nvtxStringHandle_t,
    category: u32,
    color: Option<u32>,
    schemas: Schemas<FieldSet>,
    messages: MessageSchemas,
}

// SAFETY: the handles are the tool's and valid on every thread; the rest is `Send` and `Sync`.
unsafe impl Send for NvtxRange {}
// SAFETY: as above.
unsafe impl Sync for NvtxRange {}

impl NvtxRange {
    /// Returns the range, and passes it to the tool the first time. The caller has entered the tool, so no second call on this thread waits
    /// for this one.
    #[inline]
    pub(super) fn registered(range: &'static RangeSpec) -> &'static NvtxRange {
        RANGES.get(range).get_or_init(|| Box::new(NvtxRange::register(range)))
    }

    #[cold]
    fn register(range: &'static RangeSpec) -> NvtxRange {
        // This pairs with the switch's release: everything that the tool wrote while it started is visible from here on, also to threads
        // that find the range registered.
        fence(Ordering::Acquire);
        let (domain, category) = Domain::for_range(range);
        // SAFETY: the label is NUL-terminated and lives as long as the program.
        let message = table::domain_register_string()
            .map_or(std::ptr::null_mut(), |register| unsafe { register(domain, range.label().as_ptr()) });
        let color = range.color().map(|rgb| 0xff00_0000 | rgb);
        NvtxRange {
            domain,
            label: range.label(),
            message,
            category,
            color,
            schemas: Schemas::default(),
            messages: MessageSchemas::default(),
        }
    }

    /// Begins the range on this thread. Returns whether the tool has begun it; a refused range must not be popped, because that
    /// would end the range around it.
    #[inline]
    pub(super) fn push(&self, fields: &Fields, message: Option<&Message>) -> bool {
        self.with_attributes(fields, message, |attributes| {
            let Some(push) = table::domain_range_push_ex() else { return false };
            // SAFETY: the attributes, and what they point to, outlive the call; the handles are the tool's own.
            let level = outside(|| unsafe { push(self.domain, attributes) });
            pushes::has_begun(level)
        })
    }

    /// Ends the range that this thread began last.
    #[inline]
    pub(super) fn pop(&self) {
        if let Some(pop) = table::domain_range_pop() {
            // SAFETY: the handle is the tool's own.
            outside(|| unsafe { pop(self.domain) });
        }
    }

    /// Begins a range that any thread can end.
    #[inline]
    pub(super) fn start(&self, fields: &Fields, message: Option<&Message>) -> nvtxRangeId_t {
        self.with_attributes(fields, message, |attributes| {
            // SAFETY: as in `push`.
            table::domain_range_start_ex().map_or(0, |start| outside(|| unsafe { start(self.domain, attributes) }))
        })
    }

    #[inline]
    pub(super) fn end(&self, id: nvtxRangeId_t) {
        if let Some(end) = table::domain_range_end() {
            // SAFETY: the handle and the id are the tool's own.
            outside(|| unsafe { end(self.domain, id) });
        }
    }

    /// Marks an entry of the batch that is open on this thread.
    #[cold]
    pub(super) fn mark(&self, message: &Message) {
        self.with_attributes(&Fields::default(), Some(message), |attributes| {
            if let Some(mark) = table::domain_mark_ex() {
                // SAFETY: as in `push`.
                outside(|| unsafe { mark(self.domain, attributes) });
            }
        });
    }

    /// Calls `call` with the attributes of a zone. They have no payload if the zone has nothing for one or the tool accepts no payloads.
    #[inline]
    fn with_attributes<T>(
        &self,
        fields: &Fields,
        message: Option<&Message>,
        call: impl FnOnce(*const nvtxEventAttributes_t) -> T,
    ) -> T {
        let mut attributes = self.attributes();
        let is_empty = fields.is_empty() && fields.label().is_none();
        let schema = if is_empty { None } else { self.schemas.id(self.domain, self.label, fields) };
        match (schema, message) {
            (None, None) => call(&raw const attributes),
            (Some(schema), None) => {
                let bytes = FieldBytes::encode(fields);
                call(attributes.with_payloads(&[bytes.of_schema(schema)]))
            }
            (schema, Some(message)) => self.with_message(attributes, fields, schema, message, call),
        }
    }

    /// A collective's message comes before its fields.
    #[inline(never)]
    fn with_message<T>(
        &self,
        mut attributes: nvtxEventAttributes_t,
        fields: &Fields,
        schema: Option<u64>,
        message: &Message,
        call: impl FnOnce(*const nvtxEventAttributes_t) -> T,
    ) -> T {
        let (message, bytes) = (self.messages.encode(self.domain, message), FieldBytes::encode(fields));
        let message = message.as_ref().map(|(schema, bytes)| bytes.of_schema(*schema));
        match (message, schema.map(|schema| bytes.of_schema(schema))) {
            (Some(message), Some(fields)) => call(attributes.with_payloads(&[message, fields])),
            (Some(payload), None) | (None, Some(payload)) => call(attributes.with_payloads(&[payload])),
            (None, None) => call(&raw const attributes),
        }
    }

    fn attributes(&self) -> nvtxEventAttributes_t {
        let message = if self.message.is_null() {
            (NVTX_MESSAGE_TYPE_ASCII, self.label.as_ptr().cast::<c_void>())
        } else {
            (NVTX_MESSAGE_TYPE_REGISTERED, self.message.cast_const())
        };
        nvtxEventAttributes_t::new(message, self.category, self.color)
    }
}

impl nvtxEventAttributes_t {
    /// Returns attributes without a payload. The message is its type and a pointer.
    #[inline]
    pub(super) fn new(
        (message_type, message): (i32, *const c_void),
        category: u32,
        color: Option<u32>,
    ) -> nvtxEventAttributes_t {
        nvtxEventAttributes_t {
            version: NVTX_VERSION,
            size: size_of::<nvtxEventAttributes_t>() as u16,
            category,
            colorType: if color.is_some() { NVTX_COLOR_ARGB } else { NVTX_COLOR_UNKNOWN },
            color: color.unwrap_or(0),
            payloadType: NVTX_PAYLOAD_UNKNOWN,
            reserved0: 0,
            payload: std::ptr::null(),
            messageType: message_type,
            message,
        }
    }

    /// Adds payloads, which must live until the tool has the attributes.
    #[inline]
    pub(super) fn with_payloads(&mut self, payloads: &[nvtxPayloadData_t]) -> *const nvtxEventAttributes_t {
        self.payloadType = NVTX_PAYLOAD_TYPE_EXT;
        self.reserved0 = payloads.len() as i32;
        self.payload = payloads.as_ptr();
        &raw const *self
    }
}

/// Passes all ranges of the catalog to the tool, and their descriptions.
///
/// NVTX has no place for the description of a range, but a schema has one for that of an entry: each domain gets one schema that has the
/// domain's ranges as its entries. No payload uses it.
#[cold]
pub(super) fn register_all() {
    let mut domains: Vec<(&str, nvtxDomainHandle_t, Vec<&RangeSpec>)> = Vec::new();
    for range in catalog() {
        let handle = NvtxRange::registered(range).domain;
        match domains.iter_mut().find(|(namespace, ..)| *namespace == range.namespace()) {
            Some((.., ranges)) => ranges.push(range),
            None => domains.push((range.namespace(), handle, vec![range])),
        }
    }
    for (_, domain, ranges) in domains {
        let text = |range: &&RangeSpec| CString::new(range.description()).unwrap_or_default();
        let descriptions: Vec<_> = ranges.iter().map(text).collect();
        let entries = ranges.iter().zip(&descriptions);
        register_schema(domain, c"warpline.catalog", entries.map(|(range, text)| (range.label(), Entry::U64, &**text)));
    }
}

/// A namespace that the tool knows, and the kinds of its ranges that have a name there.
struct Domain {
    namespace: &'static str,
    handle: nvtxDomainHandle_t,
    kinds: Vec<Kind>,
}

// SAFETY: the handle is the tool's and valid on every thread.
unsafe impl Send for Domain {}

impl Domain {
    /// Returns the domain of a range's namespace, and the category of its kind in it.
    fn for_range(range: &RangeSpec) -> (nvtxDomainHandle_t, u32) {
        static DOMAINS: Mutex<Vec<Domain>> = Mutex::new(Vec::new());
        let mut domains = lock(&DOMAINS);
        let known = domains.iter().position(|domain| domain.namespace == range.namespace());
        let at = known.unwrap_or_else(|| {
            domains.push(Domain::create(range.namespace()));
            domains.len() - 1
        });
        let domain = &mut domains[at];
        let category = range.kind() as u32 + 1;
        if !domain.kinds.contains(&range.kind()) {
            domain.kinds.push(range.kind());
            let name = CString::new(range.kind().as_str()).unwrap_or_default();
            table::name_category(domain.handle, category, &name);
        }
        (domain.handle, category)
    }

    fn create(namespace: &'static str) -> Domain {
        let name = CString::new(namespace).unwrap_or_default();
        Domain { namespace, handle: table::create_domain(&name), kinds: Vec::new() }
    }
}
