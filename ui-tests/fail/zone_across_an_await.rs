use warpline::HostStream;

warpline::namespace!("demo", "vector arithmetic");

warpline::range! {
    ADD = "demo.add": "Adds.";
}

fn is_send(_: impl Send) {}

fn add(stream: &'static HostStream) {
    is_send(async move {
        let _zone = ADD.zone(stream);
        std::future::ready(()).await;
    });
}

fn main() {}
