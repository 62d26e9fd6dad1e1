//! A program that has only spans of `tracing`, whose spans are zones on a stream too: a field has the stream.
//!
//! ```sh
//! cargo run --release --features tracing --example tracing_zones   # writes tracing_zones.pftrace for https://ui.perfetto.dev
//! ```

use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;

use tracing::{info_span, instrument};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::prelude::*;
use warpline::tracing::on_stream;
use warpline::{HostStream, Session};

/// Queues work on the stream, as a launch of a kernel does.
fn launch(stream: &HostStream, steps: u64) {
    stream.launch(move || {
        black_box((0..steps).fold(0, |sum, n| sum ^ black_box(n)));
    });
}

#[instrument(skip(stream), fields(gpu = ?on_stream(stream)))]
fn forward(stream: &Arc<HostStream>, layer: u64) {
    launch(stream, 200_000 * (layer + 1));
}

fn train(stream: &Arc<HostStream>, epoch: u64) {
    let _epoch = info_span!("epoch", epoch, gpu = ?on_stream(stream)).entered();
    for layer in 0..3 {
        forward(stream, layer);
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let spans = warpline::tracing::layer().with_filter(LevelFilter::INFO);
    tracing_subscriber::registry().with(spans).init();
    let session = Session::from_env_or("perfetto=tracing_zones.pftrace,summary");
    let stream = Arc::new(HostStream::new("compute"));
    for epoch in 0..2 {
        train(&stream, epoch);
    }
    stream.synchronize()?;
    session.finish();
    Ok(())
}
