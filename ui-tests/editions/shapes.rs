//! Functions and blocks of many shapes, each marked in each way and unmarked, and the order in which their values drop: a mark changes nothing
//! but time. The tests of editions include it; it compiles in each edition.

use std::cell::{Cell, RefCell};
use std::fmt::Debug;
use std::sync::OnceLock;

use warpline::{HostStream, Session};

thread_local! {
    static EVENTS: RefCell<Vec<String>> = RefCell::new(Vec::new());
}

/// Adds a line to what happens.
pub fn event(what: &str) {
    EVENTS.with(|events| events.borrow_mut().push(what.to_owned()));
}

/// What happens in a call.
pub fn events<T: Debug>(call: impl FnOnce() -> T) -> Vec<String> {
    EVENTS.with(|events| events.borrow_mut().clear());
    let value = call();
    event(&format!("returned {:?}", value));
    drop(value);
    EVENTS.with(|events| events.borrow().clone())
}

/// A value whose end is seen.
#[derive(Debug)]
pub struct Buffer(pub &'static str);

impl Drop for Buffer {
    fn drop(&mut self) {
        event(self.0);
    }
}

impl Buffer {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn get(&self) -> Result<usize, String> {
        Ok(self.0.len())
    }

    pub fn fail(&self) -> Result<usize, String> {
        Err(self.0.to_owned())
    }

    pub fn some(&self) -> Option<usize> {
        Some(self.0.len())
    }

    pub fn launch(&self, other: &Buffer) -> Result<usize, String> {
        event(&format!("launch {} {}", self.0, other.0));
        Ok(1)
    }

    pub fn chain(self, name: &'static str) -> Buffer {
        event(&format!("chain {} {}", self.0, name));
        Buffer(name)
    }
}

/// Two values.
pub struct Pair {
    pub left: Buffer,
    pub right: Buffer,
}

pub fn pair(left: &'static str, right: &'static str) -> Pair {
    Pair { left: Buffer(left), right: Buffer(right) }
}

macro_rules! shapes {
    ($($name:ident [$($generic:tt)*] ($($parameters:tt)*) ($($argument:expr),*) $body:tt)*) => {
        shapes!(@module plain [] $($name [$($generic)*] ($($parameters)*) $body)*);
        shapes!(@module host [#[warpline::host_zone(crate::HOST)]] $($name [$($generic)*] ($($parameters)*) $body)*);
        shapes!(@module gpu [#[warpline::gpu_zone(crate::GPU, stream = stream())]] $($name [$($generic)*] ($($parameters)*) $body)*);
        shapes!(@module err [#[warpline::host_zone(crate::HOST, err)]] $($name [$($generic)*] ($($parameters)*) $body)*);

        /// What differs from the unmarked function, by shape and mark.
        pub fn differences(count: &Cell<usize>) -> Vec<String> {
            let mut found = Vec::new();
            $(
                let expected = events(|| plain::$name($($argument),*));
                for &(mark, ref seen) in &[
                    ("host_zone", events(|| host::$name($($argument),*))),
                    ("gpu_zone", events(|| gpu::$name($($argument),*))),
                    ("err", events(|| err::$name($($argument),*))),
                ] {
                    count.set(count.get() + 1);
                    if *seen != expected {
                        found.push(format!("{} ({}): {:?}, unmarked {:?}", stringify!($name), mark, seen, expected));
                    }
                }
            )*
            found
        }
    };
    (@module $module:ident $mark:tt $($name:ident [$($generic:tt)*] $parameters:tt $body:tt)*) => {
        mod $module {
            #[allow(unused_imports)]
            use super::*;
            $(shapes! { @one $mark $name [$($generic)*] $parameters $body })*
        }
    };
    (@one [$($mark:tt)*] $name:ident [$($generic:tt)*] $parameters:tt $body:tt) => {
        $($mark)*
        pub fn $name $($generic)* $parameters -> Result<usize, String> $body
    };
}

/// Blocks, as they stand in a function.
macro_rules! blocks {
    ($($name:ident ($($before:tt)*) ($($left:tt)*) $body:tt ($($right:tt)*))*) => {
        pub mod in_blocks {
            use super::*;
            /// What differs from the unmarked block.
            pub fn differences(count: &Cell<usize>) -> Vec<String> {
                let mut found = Vec::new();
                $(
                    let plain = || -> Result<usize, String> { $($before)* $($left)* $body $($right)* };
                    let host = || -> Result<usize, String> { $($before)* $($left)* warpline::block::host_zone!(crate::HOST, $body) $($right)* };
                    let gpu = || -> Result<usize, String> {
                        $($before)* $($left)* warpline::block::gpu_zone!(crate::GPU, crate::shapes::stream(), $body) $($right)*
                    };
                    let expected = events(plain);
                    for &(mark, ref seen) in &[("block::host_zone", events(host)), ("block::gpu_zone", events(gpu))] {
                        count.set(count.get() + 1);
                        if *seen != expected {
                            found.push(format!("{} ({}): {:?}, unmarked {:?}", stringify!($name), mark, seen, expected));
                        }
                    }
                )*
                found
            }
        }
    };
}

/// Runs all shapes, with a session or without one.
pub fn run(all: &[fn(&Cell<usize>) -> Vec<String>]) {
    let count = Cell::new(0);
    let session = Session::builder().start().expect("no other session");
    let recording: Vec<String> = all.iter().flat_map(|differences| differences(&count)).collect();
    let recorded = session.finish().recorded;
    let mut found: Vec<String> = all.iter().flat_map(|differences| differences(&count)).collect();
    found.extend(recording);
    if let Ok(wanted) = std::env::var("WARPLINE_UI_TESTS") {
        assert_eq!(if recorded > 0 { "on" } else { "off" }, wanted);
    }
    assert!(found.is_empty(), "{} of {} differ:\n{}", found.len(), count.get(), found.join("\n"));
    assert!(count.get() >= 2 * 3 * 60, "{}", count.get());
}

/// The stream of all zones.
pub fn stream() -> &'static HostStream {
    static STREAM: OnceLock<HostStream> = OnceLock::new();
    STREAM.get_or_init(|| HostStream::new("shapes"))
}

shapes! {
    tail [] () () { let local = Buffer("local"); Buffer("temporary").launch(&local) }
    tail_of_a_reference [] () () { let _local = Buffer("local"); Ok(Buffer("temporary").len()) }
    tail_match [] () () {
        let _local = Buffer("local");
        match Buffer("scrutinee").len() {
            0 => Err("none".to_owned()),
            n => { event("arm"); Ok(n) }
        }
    }
    tail_match_of_an_option [] () () {
        let _local = Buffer("local");
        match Buffer("scrutinee").some() { Some(n) => Ok(n), None => Err(String::new()) }
    }
    tail_if_let [] () () {
        let _local = Buffer("local");
        if let Some(n) = Buffer("condition").some() { event("then"); Ok(n) } else { event("else"); Ok(0) }
    }
    tail_if_let_else [] () () {
        let _local = Buffer("local");
        if let Err(n) = Buffer("condition").get() { Err(n) } else { event("else"); Ok(0) }
    }
    tail_block [] () () { let _local = Buffer("local"); { let _inner = Buffer("inner"); Buffer("temporary").get() } }
    tail_unsafe_block [] () () {
        let _local = Buffer("local");
        // SAFETY: nothing in it is unsafe.
        unsafe { let _inner = Buffer("inner"); Buffer("temporary").get() }
    }
    tail_loop [] () () { let _local = Buffer("local"); loop { break Buffer("temporary").get(); } }
    tail_chain [] () () { let _local = Buffer("local"); Buffer("first").chain("second").chain("third").get() }
    tail_of_two [] () () { let _local = Buffer("local"); Buffer("first").launch(&Buffer("second")) }
    tail_closure_call [] () () { let local = Buffer("local"); (|other: &Buffer| local.launch(other))(&Buffer("temporary")) }
    tail_question [] () () { let _local = Buffer("local"); Ok(Buffer("temporary").get()? + 1) }
    tail_method_on_a_block [] () () { let _local = Buffer("local"); { Buffer("inner") }.get() }
    tail_of_a_lock [] () () {
        let local = std::sync::Mutex::new(Buffer("locked"));
        let _other = Buffer("other");
        let n = local.lock().unwrap().len();
        Ok(n)
    }
    tail_parenthesis [] () () { let _local = Buffer("local"); (Buffer("temporary").get()) }
    tail_struct_field [] () () { let _local = Buffer("local"); Ok(pair("left", "right").left.len()) }
    returned [] () () { let _local = Buffer("local"); return Buffer("temporary").get(); }
    returned_early [] () () {
        let _local = Buffer("local");
        if Buffer("condition").len() > 0 { return Buffer("temporary").get(); }
        let _late = Buffer("late");
        Ok(0)
    }
    question [] () () { let _local = Buffer("local"); let n = Buffer("temporary").fail()?; let _late = Buffer("late"); Ok(n) }
    question_of_an_option [] () () { let _local = Buffer("local"); Buffer("some").some().ok_or_else(|| Buffer("none").0.to_owned())?; Ok(2) }
    semicolon [] () () { let _local = Buffer("local"); let _ = Buffer("temporary").get(); Ok(1) }
    one_expression [] () () { Buffer("temporary").get() }
    only_items [] () () { const N: usize = 4; fn inner() -> Buffer { Buffer("inner") } inner().get().map(|n| n + N) }
    inner_attribute [] () () { #![allow(unused_variables)] let local = Buffer("local"); Buffer("temporary").get() }
    shadowed [] () () { let a = Buffer("first"); let a = Buffer(if a.len() > 0 { "second" } else { "none" }); a.get() }
    nothing_but_ok [] () () { Ok(3) }
    two [] (a: Buffer, b: Buffer) (Buffer("a"), Buffer("b")) { a.launch(&b) }
    two_in_the_other_order [] (a: Buffer, b: Buffer) (Buffer("a"), Buffer("b")) { b.launch(&a) }
    two_and_a_local [] (a: Buffer, b: Buffer) (Buffer("a"), Buffer("b")) { let c = Buffer("c"); b.launch(&c)?; a.launch(&c) }
    three_with_one_used [] (a: Buffer, b: Buffer, c: Buffer) (Buffer("a"), Buffer("b"), Buffer("c")) { let _ = (&a, &c); b.get() }
    one_of_two_used [] (a: Buffer, _b: Buffer) (Buffer("a"), Buffer("b")) { a.get() }
    none_used [] (_a: Buffer, _b: Buffer) (Buffer("a"), Buffer("b")) { Ok(0) }
    moved [] (a: Buffer, b: Buffer, c: Buffer) (Buffer("a"), Buffer("b"), Buffer("c")) { drop(b); c.launch(&a) }
    moved_sometimes [] (a: Buffer, b: Buffer, n: usize) (Buffer("a"), Buffer("b"), 1) { if n > 0 { drop(a); } b.get() }
    parameter_mutated [] (mut a: Buffer, mut b: Buffer) (Buffer("a"), Buffer("b")) { b = Buffer("new b"); a.0 = "new a"; b.get() }
    parameter_failed [] (a: Buffer, b: Buffer) (Buffer("a"), Buffer("b")) { let _c = Buffer("c"); b.fail()?; a.get() }
    parameter_not_named [] (_a: Buffer, _: Buffer, c: Buffer) (Buffer("a"), Buffer("unnamed"), Buffer("c")) { c.get() }
    parameter_not_named_at_the_end [] (a: Buffer, b: Buffer, _: Buffer) (Buffer("a"), Buffer("b"), Buffer("unnamed")) { b.launch(&a) }
    parameters_in_a_pattern [] (Pair { left, right }: Pair, c: Buffer) (pair("left", "right"), Buffer("c")) { c.launch(&left)?; right.get() }
    parameters_in_a_tuple [] ((a, b): (Buffer, Buffer), c: Buffer) ((Buffer("a"), Buffer("b")), Buffer("c")) { b.launch(&a)?; c.get() }
    a_part_of_a_parameter [] (p: Pair, c: Buffer) (pair("left", "right"), Buffer("c")) { drop(p.left); c.get() }
    a_field_of_a_parameter [] (p: Pair, c: Buffer) (pair("left", "right"), Buffer("c")) { c.launch(&p.right) }
    rest_of_a_pattern [] ((a, _): (Buffer, Buffer), c: Buffer) ((Buffer("a"), Buffer("rest")), Buffer("c")) { c.launch(&a) }
    rest_of_a_struct [] (Pair { left, .. }: Pair, c: Buffer) (pair("left", "right"), Buffer("c")) { c.launch(&left) }
    by_reference_in_a_pattern [] (ref a: Buffer, b: Buffer) (Buffer("a"), Buffer("b")) { b.launch(a) }
    part_by_reference [] ((ref a, b): (Buffer, Buffer), c: Buffer) ((Buffer("a"), Buffer("b")), Buffer("c")) { b.launch(a)?; c.get() }
    part_by_reference_of_a_struct [] (Pair { ref left, .. }: Pair, c: Buffer) (pair("left", "right"), Buffer("c")) { c.launch(left) }
    rest_between_parameters [] (a: Buffer, (_, b): (Buffer, Buffer), c: Buffer) (Buffer("a"), (Buffer("rest"), Buffer("b")), Buffer("c")) { c.launch(&b)?; a.get() }
    rest_of_an_array [] ([a, .., b]: [Buffer; 4], c: Buffer) ([Buffer("1"), Buffer("2"), Buffer("3"), Buffer("4")], Buffer("c")) { c.launch(&b)?; a.get() }
    closure_with_exits [] (a: Buffer, b: Buffer) (Buffer("a"), Buffer("b")) {
        let fails = |x: &Buffer| -> Result<usize, String> { if x.len() > 9 { return Ok(0); } x.fail()?; Ok(1) };
        let _c = Buffer("c");
        if fails(&a).is_ok() || fails(&b).is_ok() { return Ok(0); }
        Ok(b.launch(&a)? | 4)
    }
    exits_in_a_match [] (a: Buffer, b: Buffer) (Buffer("a"), Buffer("b")) {
        match b.len() { 0 | 9 => return a.fail(), 1 | 2 if b.get()? == 1 => return Ok(b.get()? + a.launch(&b)?), _ => {} }
        Ok(0)
    }
    exits_in_macros [] (a: Buffer, b: Buffer) (Buffer("a"), Buffer("b")) { event(&format!("{}", a.get()?)); let _ = vec![b.get()?, return a.launch(&b)]; }
    converted [] (a: Buffer, b: Buffer) (Buffer("a"), Buffer("b")) { let _c = Buffer("c"); Err(Buffer("error").0)?; a.launch(&b) }
    looped_to_an_exit [] (a: Buffer, b: Buffer) (Buffer("a"), Buffer("b")) { 'outer: loop { let _c = Buffer("c"); loop { if a.len() > 4 { continue 'outer; } return b.launch(&a); } } }
    mutable_in_a_pattern [] (a: Buffer, (mut b, mut c): (Buffer, Buffer)) (Buffer("a"), (Buffer("b"), Buffer("c"))) { c.0 = "c changed"; b = Buffer("new b"); b.launch(&a) }
    boxed [] (a: Box<Buffer>, b: Option<Buffer>) (Box::new(Buffer("a")), Some(Buffer("b"))) { b.map_or(Ok(0), |b| b.launch(&a)) }
    generic [<T: Debug, U: Debug>] (a: T, b: U) (Buffer("a"), Buffer("b")) { Ok(format!("{:?}{:?}", b, a).len()) }
    by_impl [] (a: impl Debug, b: impl Debug) (Buffer("a"), Buffer("b")) { Ok(format!("{:?}{:?}", b, a).len()) }
    closure_parameter [] (f: impl FnOnce() -> usize, b: Buffer) ({ let a = Buffer("captured"); move || a.len() }, Buffer("b")) { Ok(f() + b.len()) }
    borrowed [] (a: &Buffer, b: Buffer) (&Buffer("a"), Buffer("b")) { Buffer("temporary").launch(a)?; b.get() }
    exclusive [] (a: &mut Buffer, b: Buffer) (&mut Buffer("a"), Buffer("b")) { *a = Buffer("new a"); b.launch(a) }
    looped [] (items: Vec<Buffer>, b: Buffer) (vec![Buffer("1"), Buffer("2")], Buffer("b")) { let mut n = 0; for item in items { n += item.len(); } Ok(n + b.len()) }
    while_let [] (mut items: Vec<Buffer>, b: Buffer) (vec![Buffer("1"), Buffer("2")], Buffer("b")) { while let Some(item) = items.pop() { item.launch(&b)?; } Ok(0) }
    unit_tail [] (a: Buffer, b: Buffer) (Buffer("a"), Buffer("b")) { if b.len() > 0 { let _ = a.get(); } Ok(()).map(|()| 1) }
    macro_in_the_body [] (a: Buffer, b: Buffer) (Buffer("a"), Buffer("b")) { macro_rules! early { ($e:expr) => { return $e } } let _c = Buffer("c"); early!(b.launch(&a)) }
    nested_function [] (a: Buffer, b: Buffer) (Buffer("a"), Buffer("b")) { fn inner(x: Buffer, y: Buffer) -> usize { y.len() + x.len() } Ok(inner(b, a)) }
}

blocks! {
    tail () (let n = ) { let local = Buffer("local"); Buffer("temporary").launch(&local) } (; n)
    as_the_tail (let _outer = Buffer("outer");) () { let local = Buffer("local"); Buffer("temporary").launch(&local) } ()
    question () (let n = ) { let local = Buffer("local"); local.fail()? } (; Ok(n))
    method_behind () (let n = ) { Buffer("temporary").len() } (.max(2); Ok(n))
    borrowed (let outer = Buffer("outer");) (let b: &Buffer = &) { Buffer("temporary") } (; outer.launch(b))
    one_expression () () { Buffer("temporary").get() } ()
    match_tail () (let n = ) { let _local = Buffer("local"); match Buffer("scrutinee").some() { Some(n) => n, None => 0 } } (; Ok(n))
    in_a_condition (let _outer = Buffer("outer");) (if ) { Buffer("temporary").len() > 1 } ({ Ok(1) } else { Ok(0) })
}
