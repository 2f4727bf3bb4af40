//! What each thread has of its own: the last error, the device it chose, and which context was bound
//! for it. Plain cells without destructors: access is one address calculation, and a thread that ends
//! runs nothing.

use core::cell::Cell;
use core::ffi::c_int;

use vgpu_abi::driver::CUcontext;
use vgpu_abi::runtime::CudaError;

/// A thread's state.
pub struct Thread {
    last: Cell<CudaError>,
    /// The ordinal that the thread chose; 0 before it chose any, as CUDA has it.
    pub device: Cell<c_int>,
    /// A context seen current to this thread, and the ordinal of its device.
    pub seen: Cell<(CUcontext, c_int)>,
    /// The count of device resets after which the thread's context was bound.
    pub epoch: Cell<u32>,
}

thread_local! {
    static THREAD: Thread = const {
        Thread {
            last: Cell::new(CudaError::SUCCESS),
            device: Cell::new(0),
            seen: Cell::new((CUcontext::NULL, 0)),
            epoch: Cell::new(0),
        }
    };
}

/// Hands the calling thread's state to `f`.
#[inline]
pub fn with<T>(f: impl FnOnce(&Thread) -> T) -> T {
    THREAD.with(f)
}

/// Runs a call; its error becomes the thread's last error.
#[inline]
pub fn record(call: impl FnOnce() -> Result<(), CudaError>) -> Result<(), CudaError> {
    call().inspect_err(|&error| remember(error))
}

/// Makes `error` the last error. One that lost the context is never displaced.
#[cold]
fn remember(error: CudaError) {
    with(|thread| {
        if !thread.last.get().is_sticky() {
            thread.last.set(error);
        }
    });
}

/// The last error.
#[inline]
pub fn last() -> CudaError {
    with(|thread| thread.last.get())
}

/// The last error, which is forgotten unless it lost the context.
#[inline]
pub fn take_last() -> CudaError {
    with(|thread| {
        let error = thread.last.get();
        if error.0 != 0 && !error.is_sticky() {
            thread.last.set(CudaError::SUCCESS);
        }
        error
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_error_is_each_threads_own_and_is_taken_once() {
        assert_eq!(record(|| Err(CudaError::INVALID_VALUE)), Err(CudaError::INVALID_VALUE));
        std::thread::spawn(|| assert_eq!(last(), CudaError::SUCCESS)).join().unwrap();
        assert_eq!(record(|| Ok(())), Ok(()), "a success leaves the last error");
        assert_eq!(last(), CudaError::INVALID_VALUE);
        assert_eq!(take_last(), CudaError::INVALID_VALUE);
        assert_eq!(take_last(), CudaError::SUCCESS);
    }

    #[test]
    fn an_error_that_lost_the_context_stays() {
        std::thread::spawn(|| {
            let _ = record(|| Err(CudaError::ILLEGAL_ADDRESS));
            let _ = record(|| Err(CudaError::INVALID_VALUE));
            assert_eq!(take_last(), CudaError::ILLEGAL_ADDRESS);
            assert_eq!(take_last(), CudaError::ILLEGAL_ADDRESS);
        })
        .join()
        .unwrap();
    }
}
