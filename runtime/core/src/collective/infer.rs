//! What the parameters of a marked function show of a collective's message. Expansions of `#[collective]` call it; not a public
//! interface.
//!
//! A mark compiles with parameters of any type, so each question has two answers that the compiler chooses between: that of a type
//! that is known here, and `None`. The choice is between traits for `Of<T>` behind more or fewer references: method lookup takes the
//! first that applies, and the expansions call through as many references as the best answer needs. In a generic function, the
//! bounds of the function decide. Nothing here calls a driver, a library or code of the application.

use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use super::{DataType, Element, IntoCount, Message, ProcessGroup};

/// A parameter.
pub struct Of<'a, P: ?Sized>(pub &'a P);

/// What is known of a buffer: its length, the bytes of an element, and the type of the elements.
pub struct Elements {
    count: usize,
    bytes: usize,
    dtype: Option<DataType>,
}

/// A type that holds elements one after the other.
pub trait Buffer {
    /// An element.
    type Item;
    /// Returns the number of elements.
    fn count(&self) -> usize;
}

impl<T> Buffer for [T] {
    type Item = T;

    fn count(&self) -> usize {
        self.len()
    }
}

/// A buffer of elements that a collective can move.
pub trait KnownElements {
    fn __warpline_elements(&self) -> Option<Elements>;
}

impl<B: Buffer<Item: Element> + ?Sized> KnownElements for &&Of<'_, B> {
    fn __warpline_elements(&self) -> Option<Elements> {
        let dtype = Some(<B::Item as Element>::DATA_TYPE);
        Some(Elements { count: self.0.count(), bytes: size_of::<B::Item>(), dtype })
    }
}

/// A buffer of other elements.
pub trait KnownBuffer {
    fn __warpline_elements(&self) -> Option<Elements>;
}

impl<B: Buffer + ?Sized> KnownBuffer for &Of<'_, B> {
    fn __warpline_elements(&self) -> Option<Elements> {
        Some(Elements { count: self.0.count(), bytes: size_of::<B::Item>(), dtype: None })
    }
}

/// No buffer.
pub trait AnyBuffer {
    fn __warpline_elements(&self) -> Option<Elements>;
}

impl<P: ?Sized> AnyBuffer for Of<'_, P> {
    fn __warpline_elements(&self) -> Option<Elements> {
        None
    }
}

/// Completes a message from a buffer. `named` is the type that the mark knows by its name. A count needs a type of elements of the
/// same size: the elements of a slice of structs are not those that the collective counts.
pub fn elements(
    mut message: Message,
    buffer: Option<Elements>,
    named: Option<DataType>,
    takes_dtype: bool,
    takes_count: bool,
) -> Message {
    let Some(buffer) = buffer else { return message };
    if takes_dtype {
        message.dtype = buffer.dtype.or(named).filter(|dtype| is_size(&buffer, *dtype));
    }
    if takes_count && message.dtype.is_some_and(|dtype| is_size(&buffer, dtype)) {
        message.count = Some(buffer.count as u64);
    }
    message
}

/// Completes a message whose count is inferred from the buffer that receives.
pub fn elements_out(mut message: Message, buffer: Option<Elements>) -> Message {
    if let (Some(buffer), Some(_), Some(dtype)) = (buffer, message.count, message.dtype)
        && is_size(&buffer, dtype)
    {
        message.count_out = Some(buffer.count as u64);
    }
    message
}

fn is_size(buffer: &Elements, dtype: DataType) -> bool {
    buffer.bytes as u64 == dtype.bytes()
}

/// A type that has a group.
pub trait HasGroup {
    /// Returns the group, if there is one.
    fn process_group(&self) -> Option<ProcessGroup>;
}

impl HasGroup for ProcessGroup {
    fn process_group(&self) -> Option<ProcessGroup> {
        Some(self.clone())
    }
}

macro_rules! has_group_through {
    ($($pointer:ty),*) => {
        $(
            impl<G: HasGroup + ?Sized> HasGroup for $pointer {
                fn process_group(&self) -> Option<ProcessGroup> {
                    (**self).process_group()
                }
            }
        )*
    };
}

has_group_through!(&G, &mut G, Box<G>, Rc<G>, Arc<G>);

impl<G: HasGroup> HasGroup for Option<G> {
    fn process_group(&self) -> Option<ProcessGroup> {
        self.as_ref().and_then(HasGroup::process_group)
    }
}

/// A parameter that has a group.
pub trait KnownGroup {
    fn __warpline_group(&self) -> Option<ProcessGroup>;
}

impl<G: HasGroup + ?Sized> KnownGroup for &Of<'_, G> {
    fn __warpline_group(&self) -> Option<ProcessGroup> {
        self.0.process_group()
    }
}

/// A parameter of another type.
pub trait AnyGroup {
    fn __warpline_group(&self) -> Option<ProcessGroup>;
}

impl<P: ?Sized> AnyGroup for Of<'_, P> {
    fn __warpline_group(&self) -> Option<ProcessGroup> {
        None
    }
}

/// Completes a message with a group, unless it has one.
pub fn group(mut message: Message, group: Option<ProcessGroup>) -> Message {
    message.group = message.group.or(group);
    message
}

/// The answers of a type that is called `Comm` and is not cudarc's. Its own methods come first, because they take `&self` one
/// reference earlier.
pub trait NoCommunicator {
    fn world_size(&self) {}
    fn rank(&self) {}
}

impl<C: ?Sized> NoCommunicator for &C {}

/// An integer.
pub trait KnownNumber {
    fn __warpline_number(&self) -> Option<u64>;
}

impl<N: IntoCount + Copy> KnownNumber for &Of<'_, N> {
    fn __warpline_number(&self) -> Option<u64> {
        Some((*self.0).into_count())
    }
}

/// Anything else.
pub trait AnyNumber {
    fn __warpline_number(&self) -> Option<u64>;
}

impl<N: ?Sized> AnyNumber for Of<'_, N> {
    fn __warpline_number(&self) -> Option<u64> {
        None
    }
}

/// The name of a group that is only known by its size.
const UNNAMED: &str = "unnamed";

/// Bounds the groups that are kept, and the ranks of each.
const GROUPS: usize = 64;
const RANKS: u64 = 1 << 20;

/// Completes a message with the size and rank of a communicator, unless it has a group.
///
/// Communicators of one size and rank share a group, because nothing says which one a communicator is: the group does not number
/// its collectives, so that they are not matched with those of another communicator.
pub fn communicator(mut message: Message, (size, rank): (Option<u64>, Option<u64>)) -> Message {
    static KNOWN: [OnceLock<ProcessGroup>; GROUPS] = [const { OnceLock::new() }; GROUPS];
    let (None, Some(size @ 1..=RANKS), Some(rank)) = (&message.group, size, rank) else { return message };
    if rank >= size {
        return message;
    }
    let (size, rank) = (size as u32, rank as u32);
    let is_same = |group: &ProcessGroup| group.size() == size as usize && ProcessGroup::rank(group) == rank;
    for place in &KNOWN {
        if place.get().is_none() {
            // Another thread may have put its own group there.
            let _ = place.set(ProcessGroup::unnumbered(UNNAMED, 0..size, rank));
        }
        if let Some(group) = place.get().filter(|group| is_same(group)) {
            message.group = Some(group.clone());
            break;
        }
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::CollectiveKind;

    fn message() -> Message {
        Message::new(CollectiveKind::AllReduce)
    }

    fn buffer(count: usize, bytes: usize, dtype: Option<DataType>) -> Option<Elements> {
        Some(Elements { count, bytes, dtype })
    }

    #[test]
    fn a_count_needs_a_type_of_the_same_size() {
        let both = |buffer, named| {
            let message = elements(message(), buffer, named, true, true);
            (message.count, message.dtype)
        };
        assert_eq!(both(buffer(8, 4, Some(DataType::F32)), None), (Some(8), Some(DataType::F32)));
        assert_eq!(both(buffer(8, 2, None), Some(DataType::Bf16)), (Some(8), Some(DataType::Bf16)));
        assert_eq!(both(buffer(8, 12, None), Some(DataType::Bf16)), (None, None), "a struct of that name");
        assert_eq!(both(buffer(8, 12, None), None), (None, None));
        assert_eq!(both(None, Some(DataType::Bf16)), (None, None));
        let written = elements(message().dtype(DataType::F16), buffer(8, 4, None), None, false, true);
        assert_eq!((written.count, written.dtype), (None, Some(DataType::F16)), "elements of four bytes are not f16");
    }

    #[test]
    fn communicators_of_one_size_and_rank_share_a_group_without_numbers() {
        let of = |size, rank| communicator(message(), (Some(size), Some(rank)));
        let mut first = of(4, 1);
        let (group, again) = (first.group.clone().expect("known"), of(4, 1).group.expect("known"));
        assert_eq!((group.size(), ProcessGroup::rank(&group), group.name()), (4, 1, UNNAMED));
        assert_eq!(group.id(), again.id());
        assert_ne!(of(4, 2).group.expect("known").id(), group.id());
        first.begin();
        assert_eq!(first.seq, None);
        for (size, rank) in [(Some(0), Some(0)), (Some(2), Some(2)), (Some(u64::MAX), Some(0)), (None, Some(0))] {
            assert!(communicator(message(), (size, rank)).group.is_none(), "{size:?} {rank:?}");
        }
        let named = ProcessGroup::new("tp0", [2, 3], 0);
        let message = communicator(message().group(&named), (Some(4), Some(1)));
        assert_eq!(message.group.expect("written").name(), "tp0");
    }
}
