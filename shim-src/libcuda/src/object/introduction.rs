//! Introduction of a module or a function to the host, which happens when the program first needs the object
//! and gives it a number.

use std::sync::atomic::{AtomicU32, Ordering};

use vgpu_abi::CUresult;

use crate::Result;
use crate::sync::Mutex;

/// An object's number in messages, once the host knows the object.
#[derive(Default)]
pub struct Introduction {
    /// Number of the object; 0 until the host knows it.
    number: AtomicU32,
    /// Error with which the host permanently refused the object, if it did. Locked while the object is
    /// introduced.
    refused: Mutex<Option<CUresult>>,
}

impl Introduction {
    /// Returns the number if the host knows the object.
    #[inline]
    pub fn known(&self) -> Option<u32> {
        Some(self.number.load(Ordering::Acquire)).filter(|&number| number != 0)
    }

    /// Returns the number. The first call introduces the object by `introduce`, while others wait. If that
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
        // A thread that sees the number also sees what `introduce` has written before.
        self.number.store(number, Ordering::Release);
        Ok(number)
    }

    /// Resets the record for a new object. Returns the number of the old one, or `None` if the host never
    /// knew it.
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
