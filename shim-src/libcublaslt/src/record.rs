//! Descriptors: records of attributes in memory that the program owns or that the library made for it.
//!
//! A record begins with a word that says what it is and how long; its attributes follow without gaps in the order of
//! its kind's table. A program built with an older header hands in less memory; the attributes that do not fit there do
//! not exist for it, as they did not when it was built.

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;

use vgpu_abi::blas::{BlasStatus, Out};

use crate::Result;

/// An attribute of a kind of record.
#[derive(Clone, Copy, Debug)]
pub struct Attribute {
    /// Its number in the header.
    pub id: c_int,
    /// Bytes of its value, at most 8.
    pub bytes: usize,
    /// What it is at first.
    pub initial: u64,
    /// Whether a product can be said in a message whatever the value is.
    pub free: bool,
}

/// A kind of record.
pub trait Kind {
    /// In the first word of each, with the size; unlike that of other kinds.
    const COOKIE: u32;
    /// The least memory that a program hands in for one.
    const LEAST_BYTES: usize;
    /// What it holds.
    const ATTRIBUTES: &'static [Attribute];
}

/// Bytes of a record that the library makes: enough for every kind.
const OWN_BYTES: usize = 256;
/// In the size of a record that the library made.
const OWN: u32 = 1 << 31;
const HEADER_BYTES: usize = size_of::<[u32; 2]>();

/// Memory of a record that the library made.
type Own = [u64; OWN_BYTES / size_of::<u64>()];

/// A record of kind `K`: null, or the address of one.
#[derive(Debug)]
#[repr(transparent)]
pub struct Record<K>(*mut u64, PhantomData<K>);

impl<K> Clone for Record<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Record<K> {}

/// Where an attribute's value lies.
struct Place {
    at: *mut u8,
    attribute: &'static Attribute,
}

impl<K: Kind> Record<K> {
    /// Makes a record.
    pub fn create(place: Out<Self>) -> Result<Self> {
        let place = place.check()?;
        let own: *mut Own = Box::into_raw(Box::new([0; _]));
        let record = Self(own.cast(), PhantomData);
        record.write(OWN_BYTES, OWN);
        place.set(record)?;
        Ok(record)
    }

    /// Makes a record in the program's memory.
    pub fn initialise(self, bytes: usize) -> Result {
        if self.0.is_null() || bytes < K::LEAST_BYTES {
            return Err(BlasStatus::INVALID_VALUE);
        }
        self.write(bytes, 0);
        Ok(())
    }

    /// Whether it is a record of this kind.
    pub fn check(self) -> Result {
        self.size()?;
        Ok(())
    }

    /// Gives back a record that [`Self::create`] made. Null is none; one in the program's memory stays there.
    pub fn destroy(self) -> Result {
        if self.0.is_null() {
            return Ok(());
        }
        let size = self.size()?;
        // SAFETY: `size` has found a record, which is longer than its header.
        unsafe { self.0.write_unaligned(0) };
        if size & OWN != 0 {
            // SAFETY: only `create` sets the mark, in a box of this type, and the mark has just gone.
            drop(unsafe { Box::from_raw(self.0.cast::<Own>()) });
        }
        Ok(())
    }

    /// The bytes of the record, with the mark.
    fn size(self) -> Result<u32> {
        if self.0.is_null() {
            return Err(BlasStatus::INVALID_VALUE);
        }
        // SAFETY: not null, so by the promise of the export's caller the address of a record, of this or
        // another kind, which begins with these words.
        let [cookie, size] = unsafe { self.0.cast::<[u32; 2]>().read_unaligned() };
        if cookie == K::COOKIE { Ok(size) } else { Err(BlasStatus::INVALID_VALUE) }
    }

    /// Writes a new record into `bytes` bytes.
    fn write(self, bytes: usize, mark: u32) {
        // A larger record than all attributes need is none the better for it.
        let bytes = bytes.min(OWN_BYTES);
        // SAFETY: the caller has `bytes` bytes there, at least `LEAST_BYTES`, which hold the header.
        unsafe { self.0.cast::<[u32; 2]>().write_unaligned([K::COOKIE, bytes as u32 | mark]) };
        for (offset, attribute) in places::<K>(bytes) {
            // SAFETY: `places` gives out offsets of values that end within `bytes`.
            let at = unsafe { self.0.byte_add(offset) };
            store(&Place { at: at.cast(), attribute }, attribute.initial);
        }
    }

    fn place(self, id: c_int) -> Result<Place> {
        let bytes = (self.size()? & !OWN) as usize;
        let (offset, attribute) =
            places::<K>(bytes).find(|(_, attribute)| attribute.id == id).ok_or(BlasStatus::INVALID_VALUE)?;
        // SAFETY: the record is that long.
        Ok(Place { at: unsafe { self.0.byte_add(offset) }.cast(), attribute })
    }

    /// Sets an attribute to the `bytes` bytes at `value`.
    pub fn set(self, id: c_int, value: *const c_void, bytes: usize) -> Result {
        let place = self.place(id)?;
        if value.is_null() || bytes != place.attribute.bytes {
            return Err(BlasStatus::INVALID_VALUE);
        }
        // SAFETY: the export's caller promised `bytes` bytes at `value`, and the attribute has as many.
        unsafe { place.at.copy_from_nonoverlapping(value.cast(), bytes) };
        Ok(())
    }

    /// Stores an attribute's value in the `bytes` bytes at `value`, and its size in `written`. With no bytes its size alone.
    pub fn get(self, id: c_int, value: *mut c_void, bytes: usize, written: Out<usize>) -> Result {
        let place = self.place(id)?;
        if bytes == 0 {
            return written.set(place.attribute.bytes);
        }
        if value.is_null() || bytes != place.attribute.bytes {
            return Err(BlasStatus::INVALID_VALUE);
        }
        // SAFETY: as in `set`.
        unsafe { place.at.copy_to_nonoverlapping(value.cast(), bytes) };
        if let Ok(written) = written.check() {
            written.set(bytes)?;
        }
        Ok(())
    }

    /// Sets an attribute that every record of the kind has.
    pub fn put(self, id: c_int, value: u64) -> Result {
        store(&self.place(id)?, value);
        Ok(())
    }

    /// An attribute as an unsigned number.
    pub fn number(self, id: c_int) -> Result<u64> {
        Ok(load(&self.place(id)?))
    }

    /// An attribute of four bytes.
    pub fn word(self, id: c_int) -> Result<c_int> {
        Ok((self.number(id)? as u32).cast_signed())
    }

    /// An attribute as an unsigned number; what it is at first where the record is too short to have it.
    pub fn number_or_initial(self, id: c_int) -> Result<u64> {
        self.check()?;
        let initial = K::ATTRIBUTES.iter().find(|attribute| attribute.id == id);
        let initial = initial.map(|attribute| attribute.initial).ok_or(BlasStatus::INVALID_VALUE)?;
        Ok(self.place(id).map_or(initial, |place| load(&place)))
    }

    /// Whether there is none.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The first attribute that is not as it was at first and not free to be otherwise.
    pub fn unusual(self) -> Result<Option<c_int>> {
        let bytes = (self.size()? & !OWN) as usize;
        let unusual = places::<K>(bytes).find(|&(offset, attribute)| {
            let at = self.0.wrapping_byte_add(offset).cast();
            !attribute.free && load(&Place { at, attribute }) != attribute.initial
        });
        Ok(unusual.map(|(_, attribute)| attribute.id))
    }
}

/// The attributes that a record of that length has, and where.
fn places<K: Kind>(bytes: usize) -> impl Iterator<Item = (usize, &'static Attribute)> {
    K::ATTRIBUTES
        .iter()
        .scan(HEADER_BYTES, |end, attribute| {
            let offset = *end;
            *end += attribute.bytes;
            Some((offset, attribute))
        })
        .take_while(move |(offset, attribute)| offset + attribute.bytes <= bytes)
}

fn store(place: &Place, value: u64) {
    let bytes = value.to_le_bytes();
    // SAFETY: a place is that of a value of so many bytes, at most 8, within a record.
    unsafe { place.at.copy_from_nonoverlapping(bytes.as_ptr(), place.attribute.bytes) };
}

fn load(place: &Place) -> u64 {
    let mut bytes = [0; 8];
    // SAFETY: as in `store`.
    unsafe { place.at.copy_to_nonoverlapping(bytes.as_mut_ptr(), place.attribute.bytes) };
    u64::from_le_bytes(bytes)
}

/// Bytes that a record of kind `K` needs for all of its attributes.
pub const fn needed<K: Kind>() -> usize {
    let mut bytes = HEADER_BYTES;
    let mut at = 0;
    while at < K::ATTRIBUTES.len() {
        bytes += K::ATTRIBUTES[at].bytes;
        at += 1;
    }
    bytes
}
