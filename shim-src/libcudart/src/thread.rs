//! State of each thread: the last error, the device it selected, and which context was bound for it. These
//! are plain cells without destructors: access is one address calculation, and a thread that ends runs no
//! code.

use core::cell::Cell;
use core::ffi::c_int;

use vgpu_abi::driver::CUcontext;
use vgpu_abi::runtime::CudaError;

/// State of one thread.
pub struct Thread {
    last: Cell<CudaError>,
    /// Ordinal of the device that the thread selected; 0 before it selects one, as in CUDA.
    pub device: Cell<c_int>,
    /// A context that was current on this thread, and the ordinal of its device.
    pub seen: Cell<(CUcontext, c_int)>,
    /// Number of device resets when the thread's context was bound.
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

/// Calls `f` with the calling thread's state.
#[inline]
pub fn with<T>(f: impl FnOnce(&Thread) -> T) -> T {
    THREAD.with(f)
}

/// Runs a call; its error becomes the thread's last error.
#[inline]
pub fn record(call: impl FnOnce() -> Result<(), CudaError>) -> Result<(), CudaError> {
    call().inspect_err(|&error| remember(error))
}

/// Makes `error` the last error. An error that lost the context is never replaced.
#[cold]
fn remember(error: CudaError) {
    with(|thread| {
        if !thread.last.get().is_sticky() {
            thread.last.set(error);
        }
    });
}

/// Returns the last error.
#[inline]
pub fn last() -> CudaError {
    with(|thread| thread.last.get())
}

/// Returns the last error and clears it, unless it lost the context.
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
