//! What ordering by timelines costs: a signal and a wait across streams beside the driver's own two calls, a host thread's
//! wake-up beside `cuEventSynchronize`, and queues under load.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::{CudaStream, result, sys};
use gpu::{Gpu, Pinned, Result};
use warpline::timeline::{Queue, Semaphore, WhenFull, wait_all};

use crate::figures::{Table, median, percentile, ratio, verdict};
use crate::options::Options;

/// Pairs in one timed batch: few enough that no stream is full.
const BATCH: u64 = 256;

const LONG: Duration = Duration::from_secs(60);

pub fn run(options: &Options) -> Result {
    let gpu = Gpu::new(0)?;
    let rounds = options.size("rounds", 40);
    order(&gpu, 5 * rounds)?;
    wake(&gpu, rounds)?;
    queues(&gpu)
}

/// Events without a time, as a program that orders streams by hand has them.
struct Untimed(Vec<sys::CUevent>);

impl Untimed {
    fn new(count: u64) -> Result<Untimed> {
        let make = |_| result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING);
        Ok(Untimed((0..count).map(make).collect::<std::result::Result<_, _>>()?))
    }
}

impl Drop for Untimed {
    fn drop(&mut self) {
        for event in self.0.drain(..) {
            // SAFETY: ours, and not used again.
            let _ = unsafe { result::event::destroy(event) };
        }
    }
}

fn order(gpu: &Gpu, rounds: u64) -> Result {
    let title = format!(
        "timeline: CPU ns of a signal on one stream and a wait on another, medians of {rounds} rounds of {BATCH}"
    );
    let columns = ["cuEventRecord + cuStreamWaitEvent", "signal_on + wait_on", "ratio", "goal 1.40"];
    let mut table = Table::new(&title, &columns);
    let (from, to) = (gpu.stream()?, gpu.stream()?);
    let events = Untimed::new(BATCH)?;
    let semaphore = Semaphore::new(0);
    let mut value = 0;
    let (mut raw, mut ours) = (Vec::new(), Vec::new());
    let mut turn = |is_ours: bool| -> Result<f64> {
        let begin = Instant::now();
        if is_ours {
            for _ in 0..BATCH {
                value += 1;
                semaphore.signal_on(&from, value)?;
                semaphore.wait_on(&to, value)?;
            }
        } else {
            for event in &events.0 {
                // SAFETY: the event and the streams live.
                unsafe {
                    sys::cuEventRecord(*event, from.cu_stream()).result()?;
                    sys::cuStreamWaitEvent(to.cu_stream(), *event, 0).result()?;
                }
            }
        }
        let ns = begin.elapsed().as_nanos() as f64 / BATCH as f64;
        to.synchronize()?;
        semaphore.wait(value, LONG)?;
        Ok(ns)
    };
    for round in 0..=rounds {
        // Each is first in half of the rounds.
        for is_ours in [round % 2 == 0, round % 2 == 1] {
            let ns = turn(is_ours)?;
            // The first round warms up.
            if round > 0 {
                if is_ours { &mut ours } else { &mut raw }.push(ns);
            }
        }
    }
    let is = ratio(&ours, &raw);
    table.row(&[
        format!("{:.0}", median(&raw)),
        format!("{:.0}", median(&ours)),
        format!("{is:.3}"),
        verdict(is, 1.4).to_owned(),
    ]);
    table.print();
    Ok(())
}

/// How long after the device let go of a stream a thread that waits for it goes on.
fn wake(gpu: &Gpu, rounds: u64) -> Result {
    let title =
        format!("timeline: us from the end of a kernel's wait to the waiting thread, medians of {rounds} rounds");
    let columns = ["waited", "cuEventSynchronize", "p90", "Semaphore::wait", "p90", "ratio", "goal 1.20"];
    let mut table = Table::new(&title, &columns);
    let stream = gpu.stream()?;
    let events = Untimed::new(1)?;
    let semaphore = Semaphore::new(0);
    let mut value = 0;
    for waited in [50, 500, 2_000, 20_000].map(Duration::from_micros) {
        let (mut raw, mut ours) = (Vec::new(), Vec::new());
        for round in 0..=rounds {
            let raw_us = woken(
                gpu,
                &stream,
                waited,
                |stream| {
                    // SAFETY: the event and the stream live.
                    unsafe { sys::cuEventRecord(events.0[0], stream.cu_stream()) }.result()?;
                    Ok(())
                },
                || {
                    // SAFETY: the event lives.
                    unsafe { sys::cuEventSynchronize(events.0[0]) }.result()?;
                    Ok(())
                },
            )?;
            value += 1;
            let ours_us = woken(
                gpu,
                &stream,
                waited,
                |stream| Ok(semaphore.signal_on(stream, value)?),
                || Ok(semaphore.wait(value, LONG)?),
            )?;
            if round > 0 {
                raw.push(raw_us);
                ours.push(ours_us);
            }
        }
        let is = ratio(&ours, &raw);
        table.row(&[
            format!("{} us", waited.as_micros()),
            format!("{:.1}", median(&raw)),
            format!("{:.1}", percentile(&raw, 90.0)),
            format!("{:.1}", median(&ours)),
            format!("{:.1}", percentile(&ours, 90.0)),
            format!("{is:.3}"),
            verdict(is, 1.2).to_owned(),
        ]);
    }
    table.print();
    Ok(())
}

/// A kernel that hangs is let go by another thread after a while; us from then until `wait` is back on this one.
fn woken(
    gpu: &Gpu,
    stream: &Arc<CudaStream>,
    after: Duration,
    signal: impl FnOnce(&Arc<CudaStream>) -> Result,
    wait: impl FnOnce() -> Result,
) -> Result<f64> {
    let flag = Pinned::new(1)?;
    gpu.hang(stream, flag.as_ptr())?;
    signal(stream)?;
    let address = flag.as_ptr() as usize;
    let letting_go = std::thread::spawn(move || {
        let begin = Instant::now();
        while begin.elapsed() < after {
            std::hint::spin_loop();
        }
        let now = Instant::now();
        // SAFETY: the memory lives until this thread has been joined.
        unsafe { (address as *mut u64).write_volatile(1) };
        now
    });
    let waited = wait();
    let end = Instant::now();
    let begin = letting_go.join().map_err(|_| "the thread that lets go panicked")?;
    waited?;
    stream.synchronize()?;
    Ok(end.saturating_duration_since(begin).as_nanos() as f64 / 1e3)
}

fn queues(gpu: &Gpu) -> Result {
    const QUEUES: usize = 8;
    const EACH: u64 = 10_000;
    let title = format!("timeline: {QUEUES} queues of {EACH} submissions, each after one of another queue");
    let mut table = Table::new(&title, &["seconds", "submissions a second"]);
    let build = |_| -> Result<Queue<Arc<CudaStream>>> {
        let builder = Queue::<Arc<CudaStream>>::builder("one of eight").when_full(WhenFull::Wait);
        Ok(builder.build(vec![gpu.stream()?])?)
    };
    let queues = (0..QUEUES).map(build).collect::<Result<Vec<_>>>()?;
    let done: Vec<Semaphore> = (0..QUEUES).map(|_| Semaphore::new(0)).collect();
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for (at, queue) in queues.iter().enumerate() {
            let (before, done) = (&done[(at + QUEUES - 1) % QUEUES], &done[at]);
            scope.spawn(move || {
                for value in 1..=EACH {
                    // The first one leads: it waits for the round before.
                    let waits = [(before, value - u64::from(at == 0))];
                    // A failure shows in `done`.
                    let _ = queue.submit(&waits, &[(done, value)], |_| Ok(()));
                }
            });
        }
    });
    let all: Vec<_> = done.iter().map(|done| (done, EACH)).collect();
    wait_all(&all, LONG)?;
    let seconds = begin.elapsed().as_secs_f64();
    table.row(&[format!("{seconds:.2}"), format!("{:.0}", QUEUES as f64 * EACH as f64 / seconds)]);
    table.print();
    Ok(())
}
