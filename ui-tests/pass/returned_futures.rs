//! Functions that return a future and are no `async fn`.
#![deny(warnings)]

use std::future::{Future, ready};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use warpline::{HostStream, block, gpu_zone, host_zone};

warpline::namespace!("demo", "vector arithmetic");

struct Layer {
    stream: HostStream,
}

trait Forward {
    fn forward<'life0, 'async_trait>(
        &'life0 self,
        n: u32,
    ) -> Pin<Box<dyn Future<Output = Result<u32, String>> + Send + 'async_trait>>
    where
        'life0: 'async_trait,
        Self: 'async_trait;
}

impl Forward for Layer {
    /// As `#[async_trait]` rewrites a method.
    #[gpu_zone("demo.forward", stream = self.stream, fields(n = n), err)]
    #[allow(clippy::async_yields_async, unused_variables)]
    fn forward<'life0, 'async_trait>(
        &'life0 self,
        n: u32,
    ) -> ::core::pin::Pin<
        Box<dyn ::core::future::Future<Output = Result<u32, String>> + ::core::marker::Send + 'async_trait>,
    >
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(async move {
            if let ::core::option::Option::Some(__ret) = ::core::option::Option::None::<Result<u32, String>> {
                #[allow(unreachable_code)]
                return __ret;
            }
            let __self = self;
            let __ret: Result<u32, String> = {
                ready(()).await;
                __self.stream.launch(|| ());
                Ok(n)
            };
            #[allow(unreachable_code)]
            __ret
        })
    }
}

/// Parses.
#[host_zone(err)]
fn parse(text: &str) -> impl Future<Output = Result<u32, std::num::ParseIntError>> + use<'_> {
    let text = text.trim();
    async move {
        ready(()).await;
        let n = text.parse::<u32>()?;
        Ok(n)
    }
}

struct Server {
    stream: Arc<HostStream>,
}

/// A future that borrows nothing, although the mark names a field of `self`: as `Service` of `tower` asks for.
trait Service {
    type Future: Future<Output = u32> + Send + 'static;
    fn call(&mut self, request: u32) -> Self::Future;
    fn lazily(&self) -> impl Future<Output = u32> + Send + 'static;
}

impl Service for Server {
    type Future = Pin<Box<dyn Future<Output = u32> + Send>>;

    /// Answers.
    #[gpu_zone("demo.call", stream = self.stream)]
    fn call(&mut self, request: u32) -> Pin<Box<dyn Future<Output = u32> + Send>> {
        return Box::pin(async move { ready(request).await });
    }

    /// Answers, and moves nothing.
    #[gpu_zone("demo.lazily", stream = self.stream)]
    fn lazily(&self) -> impl Future<Output = u32> + Send + 'static {
        async { ready(7).await }
    }
}

async fn parts(stream: &HostStream) -> u32 {
    let future = block::gpu_zone!("demo.future", stream, description = "A future.", async move {
        ready(1).await
    });
    let two = block::gpu_zone!("demo.awaited", stream, description = "Awaits.", { ready(2).await });
    // Waits for nothing itself.
    let later = block::host_zone!("demo.made", description = "Makes a future.", { async { ready(3).await } });
    future.await + two + later.await
}

fn now<F: Future + Send>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it is ready"),
    }
}

fn main() {
    let layer = Layer { stream: HostStream::new("s") };
    assert_eq!(now(layer.forward(1)), Ok(1));
    assert_eq!(now(parse(" 1")), Ok(1));
    assert_eq!(now(parts(&layer.stream)), 6);
    let mut server = Server { stream: Arc::new(HostStream::new("s")) };
    let (called, lazily) = (server.call(1), server.lazily());
    drop(server);
    assert_eq!((now(called), now(lazily)), (1, 7));
}
