//! Futures of semaphores: who wakes them, and when they are ready.

use std::pin::pin;
use std::sync::Mutex;
use std::task::{Context, Wake, Waker};

use warpline_tests::threads;

use super::*;

/// The waker of one task blocks in the call that submits the value which another task needs to be woken.
#[test]
fn a_waker_that_blocks_holds_up_no_other_task() {
    struct Blocks(Mutex<mpsc::Receiver<()>>);
    impl Wake for Blocks {
        fn wake(self: Arc<Self>) {
            let _ = self.0.lock().unwrap().recv();
        }
    }
    on_stub(this_test!(), |driver| {
        driver.start();
        let (host, stream, semaphore) = (HostStream::new("held"), driver.stream(), Semaphore::new(0));
        let (let_host_go, is_host_let_go) = mpsc::channel::<()>();
        host.launch(move || is_host_let_go.recv().unwrap_or_default());
        semaphore.signal_on(&host, 1).unwrap();
        let (let_waker_go, is_waker_let_go) = mpsc::channel();
        let waker = Waker::from(Arc::new(Blocks(Mutex::new(is_waker_let_go))));
        let mut submitted = pin!(semaphore.wait_async(2));
        assert!(submitted.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let (done, is_done) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| done.send(block_on(semaphore.wait_async(1)).is_ok()));
            thread::sleep(Duration::from_millis(50));
            scope.spawn(|| semaphore.signal_on(&raw(stream), 2).unwrap());
            let woken = is_done.recv_timeout(Duration::from_secs(10));
            let_waker_go.send(()).unwrap();
            drop(let_host_go);
            assert_eq!(woken, Ok(true), "the value 2 is reached, and so 1");
        });
    });
}

#[test]
fn futures_and_host_calls_come_when_the_device_is_there_and_not_before() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let stream = driver.stream();
        let (semaphore, called) = (Semaphore::new(0), Semaphore::new(0));
        let queue = Queue::new("calls", Driver(leaked()).stream()).unwrap();
        let hold = driver.stub_hold(stream);
        semaphore.signal_on(&raw(stream), 1).unwrap();
        let (sent, got) = mpsc::channel();
        queue.submit_host(&[(&semaphore, 1)], &[(&called, 1)], move |_| Ok(sent.send(())?)).unwrap();
        assert_eq!(queue.flush(), 1);
        thread::scope(|scope| {
            let future = scope.spawn(|| block_on(semaphore.wait_async(1)));
            assert!(got.recv_timeout(Duration::from_millis(30)).is_err(), "the stream is held");
            assert!(!future.is_finished());
            driver.stub_release(hold);
            future.join().unwrap().unwrap();
        });
        called.wait(1, LONG).unwrap();
        assert!(got.recv().is_ok());
        // A failure ends the wait for a device that does not come.
        let hold = driver.stub_hold(stream);
        semaphore.signal_on(&raw(stream), 2).unwrap();
        thread::scope(|scope| {
            let thread = scope.spawn(|| semaphore.wait(2, LONG));
            let future = scope.spawn(|| block_on(semaphore.wait_async(2)));
            semaphore.fail(Code(5));
            assert_eq!(code_of(thread.join().unwrap()), Code(5));
            assert_eq!(code_of(future.join().unwrap()), Code(5));
        });
        driver.stub_release(hold);
    });
}

#[test]
fn a_future_that_an_in_process_stream_makes_ready_needs_nobody_who_asks() {
    on_stub(this_test!(), |_| {
        let (stream, semaphore) = (HostStream::new("host"), Semaphore::new(0));
        let (release, gate) = mpsc::channel();
        stream.launch(move || _ = gate.recv());
        semaphore.signal_on(&stream, 1).unwrap();
        let mut future = pin!(semaphore.wait_async(1));
        assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        release.send(()).unwrap();
        block_on(future).unwrap();
        assert_eq!(threads("warpline-timeline"), 0);
    });
}

#[test]
fn a_future_is_ready_when_a_device_overtakes_the_in_process_stream_that_it_waits_for() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (stream, semaphore) = (HostStream::new("host"), Semaphore::new(0));
        let (release, gate) = mpsc::channel();
        stream.launch(move || _ = gate.recv());
        semaphore.signal_on(&stream, 1).unwrap();
        let (woken, is_woken) = mpsc::channel();
        let waker = Waker::from(Arc::new(Tells(woken)));
        let mut future = pin!(semaphore.wait_async(1));
        assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        // A greater value is reached: the smaller one is, too.
        semaphore.signal_on(&raw(driver.stream()), 2).unwrap();
        let outcome = is_woken.recv_timeout(LONG);
        release.send(()).unwrap();
        outcome.expect("it does not wait for the in-process stream");
        block_on(future).unwrap();
    });
}

/// A waker that somebody listens to.
struct Tells(mpsc::Sender<()>);

impl Wake for Tells {
    fn wake(self: Arc<Self>) {
        let _ = self.0.send(());
    }
}
