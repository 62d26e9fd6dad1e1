//! A program that `tracing` describes already, and the GPU work under its spans, in one trace.
//!
//! A server answers two batches of three requests, all on one thread and one stream: each request is an `async fn` that
//! launches its work, lets the others launch theirs, and picks its answer when it is polled again. Only the lines with
//! `warpline` in them are new to it.
//!
//! ```sh
//! cargo run --release --features tracing --example tracing_spans   # writes tracing_spans.pftrace for https://ui.perfetto.dev
//! WARPLINE=log cargo run …                                         # zones as events, for those who only have logs
//! ```

use std::error::Error;
use std::future::{Future, poll_fn};
use std::hint::black_box;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tracing::{Instrument, debug_span, info, info_span, instrument};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::prelude::*;
use warpline::{HostStream, Session, gpu_zone, host_zone};

warpline::namespace!("serve", "answers to requests");

/// Runs a request's tokens through the model.
#[gpu_zone("serve.forward", fields(tokens = tokens))]
fn forward(stream: &HostStream, tokens: u64) {
    stream.launch(move || {
        black_box((0..tokens * 30_000).fold(0, |sum, n| sum ^ black_box(n)));
    });
}

/// Picks the most likely token.
#[host_zone("serve.sample")]
fn sample() {
    black_box((0..80_000).fold(0, |most, n: u64| most.max(black_box(n))));
}

/// Splits a request into tokens.
#[instrument(level = "debug")]
fn tokenize(request: u64) -> u64 {
    (0..20_000).fold(10 + request, |tokens, n: u64| tokens.max(black_box(n) % 10))
}

async fn answer(stream: &HostStream, request: u64) {
    let tokens = tokenize(request);
    tracing::Span::current().record("tokens", tokens);
    forward(stream, tokens);
    others_first().await;
    let _choice = debug_span!("choose").entered();
    sample();
    info!(tokens, "answered");
}

/// Lets every other request run once.
async fn others_first() {
    let mut is_over = false;
    poll_fn(|_| if std::mem::replace(&mut is_over, true) { Poll::Ready(()) } else { Poll::Pending }).await;
}

/// Polls the requests of a batch in turn until all are answered.
#[instrument(skip(stream))]
fn batch(stream: &HostStream, first: u64) {
    let start = |request| {
        let span = info_span!("request", request, tokens = tracing::field::Empty);
        Box::pin(answer(stream, request).instrument(span)) as Pin<Box<dyn Future<Output = ()>>>
    };
    let mut requests: Vec<_> = (first..first + 3).map(start).collect();
    while !requests.is_empty() {
        requests.retain_mut(|request| request.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let log = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_filter(LevelFilter::INFO);
    let spans = warpline::tracing::layer().with_filter(LevelFilter::DEBUG);
    tracing_subscriber::registry().with(log).with(spans).init();
    let session = Session::from_env_or("perfetto=tracing_spans.pftrace,summary");
    let stream = HostStream::new("compute");
    for first in [0, 3] {
        batch(&stream, first);
    }
    stream.synchronize()?;
    session.finish();
    Ok(())
}
