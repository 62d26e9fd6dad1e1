//! Replaces `layer` in a build without the feature `enable`: a layer that does nothing.

use tracing_core::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::registry::LookupSpan;

use super::TracingLayer;

/// Does nothing: no zone has a parent.
pub(super) fn observe() {}

/// The same bounds as with the feature `enable`.
impl<S> Layer<S> for TracingLayer where S: Subscriber + for<'a> LookupSpan<'a> {}
