//! The payload extension: schemas as the client registers them, and payloads read by them alone.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Mutex;

use super::{call_back, is, name};
use crate::log::{line, text};

#[repr(C)]
pub struct Data {
    schema: u64,
    size: usize,
    bytes: *const u8,
}

#[repr(C)]
pub struct Segment {
    id: usize,
    slots: usize,
    functions: *mut *const c_void,
}

#[repr(C)]
pub struct Module {
    version: u16,
    size: u16,
    id: u16,
    compatible: u16,
    segments: usize,
    first: *mut Segment,
    export: *const c_void,
    types: *const [u16; 2],
}

#[repr(C)]
pub struct SchemaEntry {
    flags: u64,
    kind: u64,
    name: *const c_char,
    description: *const c_char,
    len: u64,
    offset: u64,
    semantics: *const c_void,
    reserved: *const c_void,
}

#[repr(C)]
pub struct Schema {
    mask: u64,
    name: *const c_char,
    kind: u64,
    flags: u64,
    entries: *const SchemaEntry,
    count: usize,
    bytes: usize,
    align: usize,
    id: u64,
    extension: *mut c_void,
}

/// Name, type, offset and length of an entry.
type Known = (String, u64, usize, usize);

/// By number, from `FIRST`.
static SCHEMAS: Mutex<Vec<Vec<Known>>> = Mutex::new(Vec::new());
const FIRST: u64 = 1 << 32;

/// The entry point of a tool that takes payloads.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn InitializeInjectionNvtxExtension(module: *mut Module) -> c_int {
    // SAFETY: the client gives a module as the headers have it.
    unsafe {
        let module = &*module;
        assert_eq!((module.version, module.size, module.id, module.compatible), (3, 40, 2, 0x0104));
        assert_eq!((module.segments, (*module.first).slots), (1, 63));
        let types = std::slice::from_raw_parts(module.types, 28);
        assert_eq!((types[0], types[12], types[18], types[20]), ([28, 4], [1, 1], [8, 8], [8, 8]));
        (0..63).for_each(|slot| *(*module.first).functions.add(slot) = std::ptr::without_provenance(1));
        *(*module.first).functions = nvtxPayloadSchemaRegister as *const c_void;
    }
    c_int::from(!is("no-payload"))
}

pub unsafe extern "C" fn nvtxPayloadSchemaRegister(domain: *const c_void, schema: *const Schema) -> u64 {
    call_back();
    // SAFETY: the client gives a schema as the headers have it.
    let (schema, entries) = unsafe {
        assert_eq!((*schema).mask, 0b111_0110, "name, type, entries, their number, size");
        (&*schema, std::slice::from_raw_parts((*schema).entries, (*schema).count))
    };
    assert_eq!((schema.kind, schema.flags, schema.align), (1, 0, 0), "static");
    // SAFETY: the client gives strings.
    let known = entries.iter().map(|entry| unsafe {
        assert_eq!(entry.flags, 0);
        (text(entry.name), entry.kind, entry.offset as usize, entry.len as usize)
    });
    let known: Vec<Known> = known.collect();
    let described = entries.iter().filter(|entry| !entry.description.is_null());
    // SAFETY: as above.
    let described: Vec<_> =
        described.map(|entry| unsafe { format!("{}: {}", text(entry.name), text(entry.description)) }).collect();
    // SAFETY: as above.
    let schema_name = unsafe { text(schema.name) };
    let all = [name(domain), schema_name, format!("{known:?}"), schema.bytes.to_string(), described.join(" | ")];
    line("schema", &all);
    if is("mute") {
        return 0;
    }
    let mut schemas = SCHEMAS.lock().unwrap();
    schemas.push(known);
    FIRST + schemas.len() as u64 - 1
}

/// The payloads as `name=type:value`, joined by spaces.
///
/// # Safety
/// There are `count` of them.
pub unsafe fn read(data: *const Data, count: i32) -> String {
    assert!(count >= 1);
    // SAFETY: the caller says so.
    let all = unsafe { std::slice::from_raw_parts(data, count as usize) };
    all.iter().map(read_one).collect::<Vec<_>>().join(" ")
}

fn read_one(data: &Data) -> String {
    // SAFETY: the client says that there are as many bytes.
    let bytes = unsafe { std::slice::from_raw_parts(data.bytes, data.size) };
    let known = SCHEMAS.lock().unwrap()[(data.schema - FIRST) as usize].clone();
    let values = known.into_iter().map(|(name, kind, offset, len)| {
        let number = || bytes[offset..offset + 8].try_into().map(u64::from_ne_bytes).unwrap();
        match kind {
            12 => format!("{name}=u8:{}", bytes[offset]),
            17 => format!("{name}=i64:{}", number() as i64),
            18 => format!("{name}=u64:{}", number()),
            20 => format!("{name}=f64:{}", f64::from_bits(number())),
            76 => {
                let text = &bytes[offset..offset + len];
                let end = text.iter().position(|byte| *byte == 0).unwrap_or(len);
                format!("{name}=text:{}", std::str::from_utf8(&text[..end]).expect("UTF-8"))
            }
            other => format!("{name}=type {other}"),
        }
    });
    values.collect::<Vec<_>>().join(" ")
}
