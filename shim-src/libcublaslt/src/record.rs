//! Descriptors: records of attributes, in memory that the program owns or that the library allocated.
//!
//! A record starts with two words that hold its kind and its length. Its attributes follow without gaps, in
//! the order of the kind's table. A program built with an older header provides less memory; attributes that
//! do not fit there do not exist for it, as they did not when it was built.

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;

use vgpu_abi::blas::{BlasStatus, Out};

use crate::Result;

/// An attribute of a kind of record.
#[derive(Clone, Copy, Debug)]
pub struct Attribute {
    /// Number of the attribute in `cublasLt.h`.
    pub id: c_int,
    /// Length of its value in bytes, at most 8.
    pub bytes: usize,
    /// Value that a new record has.
    pub initial: u64,
    /// Whether a message can express a product with any value of this attribute.
    pub free: bool,
}

/// A kind of record: of a product, a matrix, or a preference.
pub trait DescriptorKind {
    /// First word of each record of the kind, different for each kind.
    const COOKIE: u32;
    /// Length in bytes of the smallest record that a program may provide.
    const LEAST_BYTES: usize;
    /// The attributes, in the order in which a record holds them.
    const ATTRIBUTES: &'static [Attribute];
}

/// Length in bytes of a record that the library allocates, enough for every kind.
const OWN_BYTES: usize = 256;
/// Bit in the length of a record that the library allocated.
const OWN: u32 = 1 << 31;
const HEADER_BYTES: usize = size_of::<[u32; 2]>();

/// Memory of a record that the library allocated.
type Own = [u64; OWN_BYTES / size_of::<u64>()];

/// A record of kind `K`: null, or its address.
#[derive(Debug)]
#[repr(transparent)]
pub struct Record<K>(*mut u64, PhantomData<K>);

impl<K> Clone for Record<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Record<K> {}

/// Where an attribute's value is stored.
struct FieldPlace {
    at: *mut u8,
    attribute: &'static Attribute,
}

impl<K: DescriptorKind> Record<K> {
    /// Allocates a record with initial values, and stores its address.
    pub fn create(place: Out<Self>) -> Result<Self> {
        let place = place.check()?;
        let own: *mut Own = Box::into_raw(Box::new([0; _]));
        let record = Self(own.cast(), PhantomData);
        record.write(OWN_BYTES, OWN);
        place.set(record)?;
        Ok(record)
    }

    /// Writes a record with initial values into `bytes` bytes of the program's memory.
    pub fn initialise(self, bytes: usize) -> Result {
        if self.0.is_null() || bytes < K::LEAST_BYTES {
            return Err(BlasStatus::INVALID_VALUE);
        }
        self.write(bytes, 0);
        Ok(())
    }

    /// Checks that this is a record of this kind.
    pub fn check(self) -> Result {
        self.size()?;
        Ok(())
    }

    /// Frees a record that [`Self::create`] allocated, and invalidates one in the program's memory. Null is
    /// accepted.
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

    /// Returns the length of the record in bytes, with [`OWN`] if the library allocated it.
    fn size(self) -> Result<u32> {
        if self.0.is_null() {
            return Err(BlasStatus::INVALID_VALUE);
        }
        // SAFETY: not null, so by the promise of the export's caller the address of a record, of this or
        // another kind, which begins with these words.
        let [cookie, size] = unsafe { self.0.cast::<[u32; 2]>().read_unaligned() };
        if cookie == K::COOKIE { Ok(size) } else { Err(BlasStatus::INVALID_VALUE) }
    }

    /// Writes a new record into `bytes` bytes, with [`OWN`] or 0 as `mark`.
    fn write(self, bytes: usize, mark: u32) {
        // Bytes beyond those that the attributes need have no use.
        let bytes = bytes.min(OWN_BYTES);
        // SAFETY: the caller has `bytes` bytes there, at least `LEAST_BYTES`, which hold the header.
        unsafe { self.0.cast::<[u32; 2]>().write_unaligned([K::COOKIE, bytes as u32 | mark]) };
        for (offset, attribute) in places::<K>(bytes) {
            // SAFETY: `places` gives out offsets of values that end within `bytes`.
            let at = unsafe { self.0.byte_add(offset) };
            store(&FieldPlace { at: at.cast(), attribute }, attribute.initial);
        }
    }

    fn place(self, id: c_int) -> Result<FieldPlace> {
        let bytes = (self.size()? & !OWN) as usize;
        let (offset, attribute) =
            places::<K>(bytes).find(|(_, attribute)| attribute.id == id).ok_or(BlasStatus::INVALID_VALUE)?;
        // SAFETY: `places` yields offsets within the length that the record states.
        Ok(FieldPlace { at: unsafe { self.0.byte_add(offset) }.cast(), attribute })
    }

    /// Sets an attribute to the `bytes` bytes at `value`, which must be as many as the attribute has.
    pub fn set(self, id: c_int, value: *const c_void, bytes: usize) -> Result {
        let place = self.place(id)?;
        if value.is_null() || bytes != place.attribute.bytes {
            return Err(BlasStatus::INVALID_VALUE);
        }
        // SAFETY: the export's caller promised `bytes` bytes at `value`, and the attribute has as many.
        unsafe { place.at.copy_from_nonoverlapping(value.cast(), bytes) };
        Ok(())
    }

    /// Stores an attribute's value in the `bytes` bytes at `value`, and its length in `written`. If `bytes`
    /// is 0, stores only the length.
    pub fn get(self, id: c_int, value: *mut c_void, bytes: usize, written: Out<usize>) -> Result {
        let place = self.place(id)?;
        if bytes == 0 {
            return written.set(place.attribute.bytes);
        }
        if value.is_null() || bytes != place.attribute.bytes {
            return Err(BlasStatus::INVALID_VALUE);
        }
        // SAFETY: the export's caller promised `bytes` bytes at `value`, and the attribute has as many.
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

    /// Returns the value of an attribute as an unsigned number.
    pub fn number(self, id: c_int) -> Result<u64> {
        Ok(load(&self.place(id)?))
    }

    /// Returns the value of an attribute of four bytes as a signed number.
    pub fn word(self, id: c_int) -> Result<c_int> {
        Ok((self.number(id)? as u32).cast_signed())
    }

    /// Returns the value of an attribute as an unsigned number, or its initial value if the record is too
    /// short to have it.
    pub fn number_or_initial(self, id: c_int) -> Result<u64> {
        self.check()?;
        let initial = K::ATTRIBUTES.iter().find(|attribute| attribute.id == id);
        let initial = initial.map(|attribute| attribute.initial).ok_or(BlasStatus::INVALID_VALUE)?;
        Ok(self.place(id).map_or(initial, |place| load(&place)))
    }

    /// Returns whether the program passed null instead of a record.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Returns the first attribute whose value is not the initial one although it is not
    /// [`free`](Attribute::free).
    pub fn unusual(self) -> Result<Option<c_int>> {
        let bytes = (self.size()? & !OWN) as usize;
        let unusual = places::<K>(bytes).find(|&(offset, attribute)| {
            let at = self.0.wrapping_byte_add(offset).cast();
            !attribute.free && load(&FieldPlace { at, attribute }) != attribute.initial
        });
        Ok(unusual.map(|(_, attribute)| attribute.id))
    }
}

/// Returns the attributes that a record of `bytes` bytes has, with their offsets.
fn places<K: DescriptorKind>(bytes: usize) -> impl Iterator<Item = (usize, &'static Attribute)> {
    K::ATTRIBUTES
        .iter()
        .scan(HEADER_BYTES, |end, attribute| {
            let offset = *end;
            *end += attribute.bytes;
            Some((offset, attribute))
        })
        .take_while(move |(offset, attribute)| offset + attribute.bytes <= bytes)
}

fn store(place: &FieldPlace, value: u64) {
    let bytes = value.to_le_bytes();
    // SAFETY: a place is that of a value of so many bytes, at most 8, within a record.
    unsafe { place.at.copy_from_nonoverlapping(bytes.as_ptr(), place.attribute.bytes) };
}

fn load(place: &FieldPlace) -> u64 {
    let mut bytes = [0; 8];
    // SAFETY: a place is that of a value of so many bytes, at most 8, within a record.
    unsafe { place.at.copy_to_nonoverlapping(bytes.as_mut_ptr(), place.attribute.bytes) };
    u64::from_le_bytes(bytes)
}

/// Length in bytes of a record of kind `K` with all of its attributes.
pub const fn needed<K: DescriptorKind>() -> usize {
    let mut bytes = HEADER_BYTES;
    let mut at = 0;
    while at < K::ATTRIBUTES.len() {
        bytes += K::ATTRIBUTES[at].bytes;
        at += 1;
    }
    bytes
}
