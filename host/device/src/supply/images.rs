//! Images of code: how one arrives in pieces, whether it is what its digest says, and which are kept so that
//! a later session need not send them again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use sha2::{Digest as _, Sha256};

use crate::session::violation::Violation;
use crate::sync::lock;

/// SHA-256 of an image.
pub type Digest = [u8; 32];

/// Bytes of an image that are hashed between two looks at whether to stop.
const HASHED: usize = 1 << 20;

/// Whether `bytes` have this digest. `go_on` is asked now and then, and its error ends the work.
pub fn has_digest<E>(
    bytes: &[u8],
    digest: &Digest,
    mut go_on: impl FnMut() -> Result<(), E>,
) -> Result<bool, E> {
    let mut hasher = Sha256::new();
    for piece in bytes.chunks(HASHED) {
        hasher.update(piece);
        go_on()?;
    }
    Ok(hasher.finalize()[..] == digest[..])
}

/// An image on its way from the guest.
#[derive(Debug)]
pub struct Arriving {
    digest: Digest,
    bytes: u64,
    /// What has come. `None`: the host had no memory for it.
    data: Option<Vec<u8>>,
}

/// An image of which no more pieces come.
#[derive(Debug, PartialEq, Eq)]
pub enum Arrived {
    /// All of it is there. Whether it has the digest has not been looked at.
    Whole(Digest, Vec<u8>),
    /// The host had no memory for it.
    NoMemory,
    /// Pieces are missing: the guest asks too early.
    Short,
}

impl Arriving {
    /// An image of `bytes` bytes of which nothing is there. Takes no memory until the first piece comes.
    #[must_use]
    pub const fn new(digest: Digest, bytes: u64) -> Self {
        Self { digest, bytes, data: Some(Vec::new()) }
    }

    /// Takes the piece of `bytes` bytes at `offset`: `copy` puts it where it is told. A piece for which there
    /// is no memory is dropped, which [`Arriving::finish`] says: nobody answers for a piece.
    pub fn piece(&mut self, offset: u64, bytes: u64, copy: impl FnOnce(&mut [u8])) -> Result<(), Violation> {
        let Some(data) = &mut self.data else { return Ok(()) };
        let start = data.len();
        if offset != start as u64 || bytes > self.bytes - offset {
            return Err(Violation::Field { field: "the offset of a piece of an image", value: offset });
        }
        if data.try_reserve_exact(self.bytes as usize - start).is_err() {
            self.data = None;
            return Ok(());
        }
        data.resize(start + bytes as usize, 0);
        copy(&mut data[start..]);
        Ok(())
    }

    /// The image.
    #[must_use]
    pub fn finish(self) -> Arrived {
        match self.data {
            Some(data) if data.len() as u64 == self.bytes => Arrived::Whole(self.digest, data),
            Some(_) => Arrived::Short,
            None => Arrived::NoMemory,
        }
    }
}

/// What an executor keeps of an image.
pub trait Kept {
    /// Bytes of the host's memory that it takes. May grow.
    fn kept_bytes(&self) -> u64;
}

/// Images by digest, kept for sessions to come and charged to none.
#[derive(Debug)]
pub struct Images<T> {
    most: u64,
    /// Number of images that are kept at most.
    count: usize,
    shelf: Mutex<Shelf<T>>,
}

#[derive(Debug)]
struct Shelf<T> {
    /// Each with the moment of its last use.
    images: HashMap<Digest, (Arc<T>, u64)>,
    /// Counts uses.
    clock: u64,
}

impl<T: Kept> Images<T> {
    /// Keeps at most `most` bytes; the least recently used go first. Sessions that have one keep it.
    #[must_use]
    pub fn new(most: u64) -> Self {
        Self { most, count: usize::MAX, shelf: Mutex::new(Shelf { images: HashMap::new(), clock: 0 }) }
    }

    /// The same, of which at most `count` are kept: for what takes more of the host than bytes.
    #[must_use]
    pub fn at_most(self, count: usize) -> Self {
        Self { count, ..self }
    }

    /// An image that was brought before.
    pub fn find(&self, digest: &Digest) -> Option<Arc<T>> {
        let mut shelf = lock(&self.shelf);
        let now = shelf.tick();
        let (image, used) = shelf.images.get_mut(digest)?;
        *used = now;
        let image = Arc::clone(image);
        shelf.shrink(self.most, self.count);
        Some(image)
    }

    /// Keeps an image, whose digest has been checked.
    pub fn keep(&self, digest: Digest, image: T) -> Arc<T> {
        let image = Arc::new(image);
        let mut shelf = lock(&self.shelf);
        let now = shelf.tick();
        shelf.images.insert(digest, (Arc::clone(&image), now));
        shelf.shrink(self.most, self.count);
        image
    }

    /// Bytes of all that are kept.
    pub fn kept_bytes(&self) -> u64 {
        let mut shelf = lock(&self.shelf);
        shelf.shrink(self.most, self.count);
        shelf.bytes()
    }
}

impl<T: Kept> Shelf<T> {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn bytes(&self) -> u64 {
        self.images.values().map(|(image, _)| image.kept_bytes()).sum()
    }

    fn shrink(&mut self, most: u64, count: usize) {
        let mut bytes = self.bytes();
        while bytes > most || self.images.len() > count {
            let Some((&digest, _)) = self.images.iter().min_by_key(|(_, (_, used))| *used) else { return };
            bytes -= self.images.remove(&digest).map_or(0, |(image, _)| image.kept_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    #[derive(Debug)]
    struct Text(u64);

    impl Kept for Text {
        fn kept_bytes(&self) -> u64 {
            self.0
        }
    }

    #[test]
    fn images_are_found_again_until_there_are_too_many() {
        let images = Images::new(25);
        let digest = |i| [i; 32];
        for i in 0..2 {
            images.keep(digest(i), Text(10));
        }
        assert_eq!(images.find(&digest(0)).unwrap().0, 10);
        images.keep(digest(2), Text(10));
        let found: Vec<bool> = (0..4).map(|i| images.find(&digest(i)).is_some()).collect();
        assert_eq!((found, images.kept_bytes()), (vec![true, false, true, false], 20));
        let images = Images::new(25).at_most(1);
        for i in 0..2 {
            images.keep(digest(i), Text(1));
        }
        assert_eq!((images.find(&digest(0)).is_some(), images.kept_bytes()), (false, 1));
    }

    #[test]
    fn pieces_come_in_order_and_all_of_them() {
        let put = |text: &'static [u8]| move |room: &mut [u8]| room.copy_from_slice(text);
        let digest: Digest = Sha256::digest(b"abcdef").into();
        let mut arriving = Arriving::new(digest, 6);
        arriving.piece(0, 4, put(b"abcd")).unwrap();
        for (offset, bytes) in [(0, 1), (3, 1), (5, 1), (4, 3), (7, 0), (u64::MAX, 1)] {
            assert!(arriving.piece(offset, bytes, |_| panic!("no room was given")).is_err(), "{offset}");
        }
        arriving.piece(4, 2, put(b"ef")).unwrap();
        let Arrived::Whole(said, data) = arriving.finish() else { panic!("not whole") };
        assert_eq!((said, &data[..]), (digest, &b"abcdef"[..]));
        let same = |digest| has_digest(&data, digest, || Ok::<(), Infallible>(()));
        assert_eq!((same(&digest), same(&[0; 32])), (Ok(true), Ok(false)));
        assert_eq!(has_digest(&data, &digest, || Err("stop")), Err("stop"));
        assert_eq!(Arriving::new(digest, 1).finish(), Arrived::Short);
        let mut huge = Arriving::new(digest, u64::MAX >> 1);
        huge.piece(0, 1, |_| panic!("there is no such memory")).unwrap();
        assert_eq!(huge.finish(), Arrived::NoMemory);
    }
}
