//! The number by which the host knows a module or a function, which it learns of when the program first needs
//! the object.

use std::sync::atomic::{AtomicU32, Ordering};

use vgpu_abi::CUresult;

use crate::Result;
use crate::sync::Mutex;

/// An object's number on the wire.
#[derive(Default)]
pub struct Introduction {
    /// 0 until the host knows the object.
    number: AtomicU32,
    /// The error with which the host refused the object for good, if it did. Locked while it is introduced.
    refused: Mutex<Option<CUresult>>,
}

impl Introduction {
    /// Returns the number, if the host knows the object.
    #[inline]
    pub fn known(&self) -> Option<u32> {
        Some(self.number.load(Ordering::Acquire)).filter(|&number| number != 0)
    }

    /// Returns the number. The first call introduces the object by `introduce`, while others wait; if that
    /// fails, the next call tries again, unless `introduce` has stored an error that would only repeat
    /// itself.
    pub fn get(&self, introduce: impl FnOnce(&mut Option<CUresult>) -> Result<u32>) -> Result<u32> {
        if let Some(number) = self.known() {
            return Ok(number);
        }
        let mut refused = self.refused.lock();
        if let Some(number) = self.known() {
            return Ok(number);
        }
        if let Some(error) = *refused {
            return Err(error);
        }
        let number = introduce(&mut refused)?;
        // Whoever sees the number sees what `introduce` has written before.
        self.number.store(number, Ordering::Release);
        Ok(number)
    }

    /// Makes it that of a new object. Returns the number that the host has for the old one.
    pub fn reset(&self) -> Option<u32> {
        *self.refused.lock() = None;
        Some(self.number.swap(0, Ordering::AcqRel)).filter(|&number| number != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_introduced_once_and_refused_once() {
        let introduction = Introduction::default();
        assert_eq!(introduction.get(|_| Err(CUresult::OUT_OF_MEMORY)), Err(CUresult::OUT_OF_MEMORY));
        assert_eq!((introduction.known(), introduction.get(|_| Ok(7))), (None, Ok(7)), "tried again");
        assert_eq!(introduction.get(|_| unreachable!()), Ok(7));
        assert_eq!((introduction.reset(), introduction.reset()), (Some(7), None));
        let refuse = |refused: &mut Option<CUresult>| {
            *refused = Some(CUresult::INVALID_IMAGE);
            Err(CUresult::INVALID_IMAGE)
        };
        assert_eq!(introduction.get(refuse), Err(CUresult::INVALID_IMAGE));
        assert_eq!(introduction.get(|_| unreachable!()), Err(CUresult::INVALID_IMAGE));
        introduction.reset();
        assert_eq!(introduction.get(|_| Ok(8)), Ok(8), "another object");
    }
}
