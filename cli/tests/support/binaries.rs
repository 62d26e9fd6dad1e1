//! Small binaries that hold a catalog, in every format that the reader knows, for the tests and as seeds for the
//! fuzzer.
//!
//! The notes are written here by hand, from the layout in the documentation of `catalog/record`, and not with the code that
//! the reader is a pair with: if one of them moves, a test fails.

use object::write::{Object, StandardSegment};
use object::{Architecture, BinaryFormat, Endianness, SectionKind, pe};

/// The two notes of one crate: a namespace and a range.
pub fn notes(endian: Endianness) -> Vec<u8> {
    let space = facts(0, &["demo", "vector arithmetic", "demo", "src/lib.rs", "5", "0.1.0"]);
    let (known, place) = (["gpu", "fine", "Adds.", "copy", "76b900"], ["demo::kernels", "src/kernels.rs", "9"]);
    let range = facts(4, &[&["demo.add"][..], &known, &place, &["0.1.0", "n"]].concat());
    [note(endian, 2, space), note(endian, 1, range)].concat()
}

/// A note of this type.
pub fn note(endian: Endianness, kind: u32, mut facts: Vec<u8>) -> Vec<u8> {
    let word = |value: u32| if endian == Endianness::Big { value.to_be_bytes() } else { value.to_le_bytes() };
    let header = [&word(9)[..], &word(facts.len() as u32), &word(kind), b"warpline\0\0\0\0"].concat();
    facts.resize(facts.len().next_multiple_of(4), 0);
    [header, facts].concat()
}

/// The facts of a note.
pub fn facts(namespace_len: u32, texts: &[&str]) -> Vec<u8> {
    let texts: String = texts.iter().map(|text| format!("{text}\0")).collect();
    [&namespace_len.to_le_bytes(), texts.as_bytes()].concat()
}

/// An object file whose section of notes holds `notes`.
pub fn object(format: BinaryFormat, machine: Architecture, endian: Endianness, notes: &[u8]) -> Vec<u8> {
    let (segment, section) = match format {
        BinaryFormat::Elf => (Vec::new(), ".note.warpline"),
        BinaryFormat::MachO => (b"__TEXT".to_vec(), "__warpline"),
        _ => (Vec::new(), ".wrpln"),
    };
    let mut object = Object::new(format, machine, endian);
    let text = object.segment_name(StandardSegment::Text).to_vec();
    object.add_section(text, b"other".to_vec(), SectionKind::ReadOnlyData);
    let kind = if format == BinaryFormat::Elf { SectionKind::Note } else { SectionKind::ReadOnlyData };
    let id = object.add_section(segment, section.into(), kind);
    object.append_section_data(id, notes, 4);
    object.write().unwrap()
}

/// The object file that most tests start from.
pub fn elf() -> Vec<u8> {
    object(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little, &notes(Endianness::Little))
}

/// An ELF file with program headers and no section headers, as a thorough strip leaves it.
pub fn elf_without_sections() -> Vec<u8> {
    const HEADER: u16 = 64;
    const SEGMENT: u16 = 56;
    let notes = notes(Endianness::Little);
    // Another tool's note first: `GNU`, a build id.
    let foreign =
        [&4_u32.to_le_bytes()[..], &4_u32.to_le_bytes(), &3_u32.to_le_bytes(), b"GNU\0\x01\x02\x03\x04"].concat();
    let data = [foreign, notes].concat();
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    file.extend([3_u16.to_le_bytes(), 62_u16.to_le_bytes()].concat());
    file.extend(1_u32.to_le_bytes());
    file.extend([0, u64::from(HEADER), 0].map(u64::to_le_bytes).concat());
    file.extend(0_u32.to_le_bytes());
    file.extend([HEADER, SEGMENT, 1, 64, 0, 0].map(u16::to_le_bytes).concat());
    file.extend([4_u32, 4].map(u32::to_le_bytes).concat());
    let (at, len) = (u64::from(HEADER + SEGMENT), data.len() as u64);
    file.extend([at, at, at, len, len, 4].map(u64::to_le_bytes).concat());
    file.extend(data);
    file
}

/// A Windows executable whose section is filled up to a whole block, as linkers do.
pub fn pe() -> Vec<u8> {
    let notes = notes(Endianness::Little);
    let mut file = Vec::new();
    let mut writer = object::write::pe::Writer::new(true, 0x1000, 0x200, &mut file);
    writer.reserve_dos_header_and_stub();
    writer.reserve_nt_headers(16);
    writer.reserve_section_headers(1);
    let kind = pe::IMAGE_SCN_CNT_INITIALIZED_DATA | pe::IMAGE_SCN_MEM_READ;
    let whole = (notes.len() as u32).next_multiple_of(0x200);
    let section = writer.reserve_section(*b".wrpln\0\0", kind, whole, whole);
    writer.write_dos_header_and_stub().unwrap();
    writer.write_nt_headers(object::write::pe::NtHeaders {
        machine: pe::IMAGE_FILE_MACHINE_AMD64,
        time_date_stamp: 0,
        characteristics: pe::IMAGE_FILE_EXECUTABLE_IMAGE,
        major_linker_version: 0,
        minor_linker_version: 0,
        address_of_entry_point: 0,
        image_base: 0x1_4000_0000,
        major_operating_system_version: 6,
        minor_operating_system_version: 0,
        major_image_version: 0,
        minor_image_version: 0,
        major_subsystem_version: 6,
        minor_subsystem_version: 0,
        subsystem: pe::IMAGE_SUBSYSTEM_WINDOWS_CUI,
        dll_characteristics: pe::DllFlags(0),
        size_of_stack_reserve: 0,
        size_of_stack_commit: 0,
        size_of_heap_reserve: 0,
        size_of_heap_commit: 0,
    });
    writer.write_section_headers();
    writer.write_section(section.file_offset, &notes);
    file.resize((section.file_offset + section.file_size) as usize, 0);
    file
}

/// A `.a` or `.rlib` with these members.
pub fn archive(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut file = b"!<arch>\n".to_vec();
    for (name, data) in members {
        file.extend(
            format!("{:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n", format!("{name}/"), 0, 0, 0, 644, data.len()).bytes(),
        );
        file.extend(*data);
        file.resize(file.len().next_multiple_of(2), b'\n');
    }
    file
}

/// A universal binary: the same program for two machines.
pub fn universal() -> Vec<u8> {
    let slices = [Architecture::X86_64, Architecture::Aarch64]
        .map(|machine| object(BinaryFormat::MachO, machine, Endianness::Little, &notes(Endianness::Little)));
    let mut file = [0xcafe_babe_u32, 2].map(u32::to_be_bytes).concat();
    let mut at = 4096_u32;
    for (slice, cpu) in slices.iter().zip([0x0100_0007_u32, 0x0100_000c]) {
        file.extend([cpu, 3, at, slice.len() as u32, 12].map(u32::to_be_bytes).concat());
        at += 4096;
    }
    for slice in &slices {
        file.resize(file.len().next_multiple_of(4096), 0);
        file.extend(slice);
    }
    file
}

/// Every binary of this file that holds the catalog, by name.
pub fn all() -> Vec<(&'static str, Vec<u8>)> {
    use Architecture::{Aarch64, I386, PowerPc, S390x, X86_64};
    use BinaryFormat::{Coff, Elf, MachO};
    let of = |format, machine, endian| object(format, machine, endian, &notes(endian));
    vec![
        ("elf64", elf()),
        ("elf32", of(Elf, I386, Endianness::Little)),
        ("elf64-big", of(Elf, S390x, Endianness::Big)),
        ("elf32-big", of(Elf, PowerPc, Endianness::Big)),
        ("elf-without-sections", elf_without_sections()),
        ("macho64", of(MachO, Aarch64, Endianness::Little)),
        ("coff", of(Coff, X86_64, Endianness::Little)),
        ("pe64", pe()),
        ("archive", archive(&[("lib.rmeta", b"metadata"), ("a.o", &elf())])),
        ("universal", universal()),
    ]
}
