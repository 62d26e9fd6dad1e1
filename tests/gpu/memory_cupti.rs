//! Device memory as CUPTI reports it on a real GPU: each allocation for its zone, whichever call made it, the peak, and an allocation that fails.
//!
//! Each test has a process of its own: a process opens CUPTI once, and a profiler that has been there leaves its marks.

use std::thread;
use std::time::{Duration, Instant};

use cudarc::driver::{DevicePtr, result, sys};
use warpline::sink::MemorySink;
use warpline::{Session, memory};
use warpline_tests::{empty_folder, this_test};

use super::{INNER, OUTER, alone_in_a_process, device};

const MIB: u64 = 1 << 20;

/// The bytes of a holder, in MiB.
fn held(holders: &[warpline::report::MemoryHolder], name: &str) -> u64 {
    holders.iter().find(|holder| holder.name == name).map_or(0, |holder| holder.bytes / MIB)
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn every_way_to_allocate_counts_for_its_zone() {
    alone_in_a_process(this_test!(), || {
        let gpu = device();
        let stream = gpu.stream().expect("a stream");
        let session = Session::builder().kernels(true).start().expect("no other session");
        let outer = OUTER.zone(&stream);
        // SAFETY: nothing uses the memory.
        let plain = unsafe { result::malloc_sync(64 << 20) }.expect("room");
        let inner = INNER.zone(&stream);
        // SAFETY: as above.
        let ordered = unsafe { result::malloc_async(stream.cu_stream(), 32 << 20) }.expect("room");
        let slice = stream.alloc_zeros::<u8>(16 << 20).expect("room");
        drop(inner);
        // SAFETY: it was allocated above, and nothing uses it.
        unsafe { result::free_async(ordered, stream.cu_stream()) }.expect("freed");
        let named = stream.alloc_zeros::<u8>(8 << 20).expect("room");
        let address = named.device_ptr(&stream).0;
        memory::allocated_named("kv cache", &stream, address, 8 << 20);
        drop(outer);
        drop(slice);
        gpu.context.synchronize().expect("no error");
        let report = session.finish();
        println!("{report}");
        let [memory] = &report.memory[..] else { panic!("one device: {report}") };
        let [of_outer, of_inner] = [OUTER.name(), INNER.name()];
        assert_eq!((held(&memory.at_peak, of_outer), held(&memory.at_peak, of_inner)), (64, 48), "{memory:?}");
        assert_eq!((held(&memory.not_freed, of_outer), held(&memory.not_freed, of_inner)), (64, 0), "{memory:?}");
        assert_eq!(held(&memory.not_freed, "kv cache"), 8, "{memory:?}");
        // The driver may allocate for itself, outside of zones.
        let rest = held(&memory.at_peak, "");
        assert_eq!(memory.peak_bytes / MIB, 112 + rest, "{memory:?}");
        assert_eq!((report.memory_counts.within, report.memory_counts.refused), (0, 0), "{report}");
        // SAFETY: it was allocated above, and nothing uses it.
        unsafe { result::free_sync(plain) }.expect("freed");
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn an_allocation_that_fails_leaves_a_trace() {
    alone_in_a_process(this_test!(), || {
        let gpu = device();
        let stream = gpu.stream().expect("a stream");
        let ring = empty_folder("gpu-out-of-memory").join("run.flight");
        let session = Session::builder()
            .kernels(true)
            .flight_at(1 << 20, &ring)
            .sink(MemorySink::new(100))
            .sink(MemorySink::new(100))
            .start()
            .expect("no other session");
        {
            let _outer = OUTER.zone(&stream);
            // SAFETY: nothing uses the memory.
            let kept = unsafe { result::malloc_sync(64 << 20) }.expect("room");
            let mut address = 0;
            // SAFETY: a valid out-pointer. 16 TiB, which no GPU has.
            let code = unsafe { sys::cuMemAlloc_v2(&raw mut address, 1 << 44) };
            assert_eq!(code, sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY);
            let trace = ring.with_file_name("run.flight.out_of_memory.pftrace");
            let since = Instant::now();
            while !trace.exists() && since.elapsed() < Duration::from_secs(10) {
                thread::sleep(Duration::from_millis(5));
            }
            println!("the trace came {} ms after the call", since.elapsed().as_millis());
            assert!(trace.exists());
            // SAFETY: it was allocated above, and nothing uses it.
            unsafe { result::free_sync(kept) }.expect("freed");
        }
        let report = session.finish();
        let note = report.notes.iter().find(|note| note.starts_with("out of memory: ")).expect("a note");
        println!("{note}");
        assert!(note.contains("cuMemAlloc") && note.contains(OUTER.name()), "{note}");
        assert_eq!(report.memory_counts.refused, 1, "{report}");
    });
}
