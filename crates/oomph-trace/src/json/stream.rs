//! Reads a document while it arrives, without building it in memory.

use std::fmt;
use std::io::{BufRead, Read};
use std::marker::PhantomData;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, SeqAccess, Visitor};

/// Counts what is read, for the offset of an error, and ends at a limit: a text of any length is one value, and a
/// small compressed file can hold a long one.
pub(crate) struct Counted<R> {
    source: R,
    read: u64,
    limit: u64,
}

impl<R> Counted<R> {
    pub(crate) fn new(source: R, limit: u64) -> Self {
        Self { source, read: 0, limit }
    }

    pub(crate) fn read(&self) -> u64 {
        self.read
    }
}

impl<R: BufRead> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.source.read(buffer)?;
        self.read += read as u64;
        if self.read > self.limit { Err(std::io::ErrorKind::FileTooLarge.into()) } else { Ok(read) }
    }
}

/// Hands each member of a list to a function, and keeps none. What is not a list is passed over.
pub(crate) struct Each<T, F> {
    take: F,
    member: PhantomData<fn(T)>,
}

impl<T, F: FnMut(T) -> Result<(), String>> Each<T, F> {
    pub(crate) fn new(take: F) -> Self {
        Self { take, member: PhantomData }
    }
}

impl<'de, T: Deserialize<'de>, F: FnMut(T) -> Result<(), String>> DeserializeSeed<'de> for Each<T, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: Deserialize<'de>, F: FnMut(T) -> Result<(), String>> Visitor<'de> for Each<T, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        while let Some(member) = list.next_element()? {
            (self.take)(member).map_err(A::Error::custom)?;
        }
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}
