//! Images of code: how an image arrives in pieces, whether it matches its digest, and which images are cached
//! so that a later session need not send them again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use sha2::{Digest as _, Sha256};

use crate::session::violation::Violation;
use crate::sync::lock;

/// SHA-256 digest of an image.
pub type Digest = [u8; 32];

/// Number of bytes that are hashed between two checks of whether to stop.
const HASHED: usize = 1 << 20;

/// Returns whether `bytes` have this digest. Calls `go_on` after each MiB; its error ends the work and is
/// returned.
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

/// Image of which the guest sends pieces.
#[derive(Debug)]
pub struct IncomingImage {
    digest: Digest,
    bytes: u64,
    /// Bytes received so far, or `None` if the host had no memory for them.
    data: Option<Vec<u8>>,
}

/// Image of which no more pieces follow.
#[derive(Debug, PartialEq, Eq)]
pub enum ReceivedImage {
    /// The image is complete. Its digest has not been checked.
    Whole(Digest, Vec<u8>),
    /// The host had no memory for the image.
    NoMemory,
    /// Pieces are missing, because the guest completes the image too early.
    Short,
}

impl IncomingImage {
    /// Makes an image of `bytes` bytes of which nothing has been received. Memory is allocated with the first
    /// piece.
    #[must_use]
    pub const fn new(digest: Digest, bytes: u64) -> Self {
        Self { digest, bytes, data: Some(Vec::new()) }
    }

    /// Receives the piece of `bytes` bytes at `offset`, which `copy` writes to its position. If the host has
    /// no memory, the piece is dropped, and [`IncomingImage::finish`] reports it, because a piece has no
    /// answer.
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

    /// Ends the reception and returns the image.
    #[must_use]
    pub fn finish(self) -> ReceivedImage {
        match self.data {
            Some(data) if data.len() as u64 == self.bytes => ReceivedImage::Whole(self.digest, data),
            Some(_) => ReceivedImage::Short,
            None => ReceivedImage::NoMemory,
        }
    }
}

/// Data that an executor caches about an image between sessions.
pub trait CachedImage {
    /// Returns the number of bytes of host memory that it occupies, which may grow.
    fn kept_bytes(&self) -> u64;
}

/// Cache of images by digest, which are charged to no session.
#[derive(Debug)]
pub struct ImageCache<T> {
    most: u64,
    /// Maximum number of images that are cached.
    count: usize,
    shelf: Mutex<CacheEntries<T>>,
}

#[derive(Debug)]
struct CacheEntries<T> {
    /// Images, each with the time of its last use.
    images: HashMap<Digest, (Arc<T>, u64)>,
    /// Number of uses of images so far, which serves as the time.
    clock: u64,
}

impl<T: CachedImage> ImageCache<T> {
    /// Makes a cache of at most `most` bytes. The least recently used images are dropped first. Sessions that
    /// use one keep it.
    #[must_use]
    pub fn new(most: u64) -> Self {
        Self { most, count: usize::MAX, shelf: Mutex::new(CacheEntries { images: HashMap::new(), clock: 0 }) }
    }

    /// Limits the number of images too. This suits images that take more host memory than their bytes.
    #[must_use]
    pub fn at_most(self, count: usize) -> Self {
        Self { count, ..self }
    }

    /// Returns the image with this digest, if it is cached.
    pub fn find(&self, digest: &Digest) -> Option<Arc<T>> {
        let mut shelf = lock(&self.shelf);
        let now = shelf.tick();
        let (image, used) = shelf.images.get_mut(digest)?;
        *used = now;
        let image = Arc::clone(image);
        shelf.shrink(self.most, self.count);
        Some(image)
    }

    /// Adds an image, whose digest the caller has checked.
    pub fn insert(&self, digest: Digest, image: T) -> Arc<T> {
        let image = Arc::new(image);
        let mut shelf = lock(&self.shelf);
        let now = shelf.tick();
        shelf.images.insert(digest, (Arc::clone(&image), now));
        shelf.shrink(self.most, self.count);
        image
    }

    /// Returns the number of bytes of all cached images.
    pub fn kept_bytes(&self) -> u64 {
        let mut shelf = lock(&self.shelf);
        shelf.shrink(self.most, self.count);
        shelf.bytes()
    }
}

impl<T: CachedImage> CacheEntries<T> {
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

    impl CachedImage for Text {
        fn kept_bytes(&self) -> u64 {
            self.0
        }
    }

    #[test]
    fn images_are_found_again_until_there_are_too_many() {
        let images = ImageCache::new(25);
        let digest = |i| [i; 32];
        for i in 0..2 {
            images.insert(digest(i), Text(10));
        }
        assert_eq!(images.find(&digest(0)).unwrap().0, 10);
        images.insert(digest(2), Text(10));
        let found: Vec<bool> = (0..4).map(|i| images.find(&digest(i)).is_some()).collect();
        assert_eq!((found, images.kept_bytes()), (vec![true, false, true, false], 20));
        let images = ImageCache::new(25).at_most(1);
        for i in 0..2 {
            images.insert(digest(i), Text(1));
        }
        assert_eq!((images.find(&digest(0)).is_some(), images.kept_bytes()), (false, 1));
    }

    #[test]
    fn pieces_come_in_order_and_all_of_them() {
        let put = |text: &'static [u8]| move |room: &mut [u8]| room.copy_from_slice(text);
        let digest: Digest = Sha256::digest(b"abcdef").into();
        let mut arriving = IncomingImage::new(digest, 6);
        arriving.piece(0, 4, put(b"abcd")).unwrap();
        for (offset, bytes) in [(0, 1), (3, 1), (5, 1), (4, 3), (7, 0), (u64::MAX, 1)] {
            assert!(arriving.piece(offset, bytes, |_| panic!("no room was given")).is_err(), "{offset}");
        }
        arriving.piece(4, 2, put(b"ef")).unwrap();
        let ReceivedImage::Whole(said, data) = arriving.finish() else { panic!("not whole") };
        assert_eq!((said, &data[..]), (digest, &b"abcdef"[..]));
        let same = |digest| has_digest(&data, digest, || Ok::<(), Infallible>(()));
        assert_eq!((same(&digest), same(&[0; 32])), (Ok(true), Ok(false)));
        assert_eq!(has_digest(&data, &digest, || Err("stop")), Err("stop"));
        assert_eq!(IncomingImage::new(digest, 1).finish(), ReceivedImage::Short);
        let mut huge = IncomingImage::new(digest, u64::MAX >> 1);
        huge.piece(0, 1, |_| panic!("there is no such memory")).unwrap();
        assert_eq!(huge.finish(), ReceivedImage::NoMemory);
    }
}
