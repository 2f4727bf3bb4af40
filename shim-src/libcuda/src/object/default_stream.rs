//! Finds the stream of a handle, which for the default streams depends on the calling thread.

use std::cell::{Cell, RefCell};

use vgpu_abi::CUresult;
use vgpu_abi::driver::{CUcontext, CUstream};

use crate::Result;
use crate::object::context::{self, Context};
use crate::object::current;
use crate::object::stream::{self, Role, Stream};
use crate::ptsz::DefaultStream;

/// Returns the stream of a handle, in the calling thread's context.
#[inline]
pub fn find(handle: CUstream, default: DefaultStream) -> Result<&'static Stream> {
    find_in(current::context()?, handle, default)
}

/// Returns the stream of a handle in the given context.
#[inline]
pub fn find_in(
    context: &'static Context,
    handle: CUstream,
    default: DefaultStream,
) -> Result<&'static Stream> {
    match (handle.0, default) {
        (0, DefaultStream::Legacy) | (1, _) => Ok(&context.legacy),
        (0, DefaultStream::PerThread) | (2, _) => per_thread(context),
        (handle, _) => stream::get(handle).ok_or(CUresult::INVALID_HANDLE),
    }
}

/// Returns the default stream, which calls without a stream argument use.
pub fn unnamed(default: DefaultStream) -> Result<&'static Stream> {
    find(CUstream::NULL, default)
}

/// Default streams of a thread, one for each context that it has used. When the thread ends, they are passed
/// on to the next thread.
struct Mine(RefCell<Vec<(usize, usize)>>);

impl Drop for Mine {
    fn drop(&mut self) {
        for &(context, stream) in self.0.get_mut().iter() {
            if let (Ok(context), Some(_)) = (context::get(CUcontext(context)), stream::get(stream)) {
                context.spare.lock().push(stream);
            }
        }
        LAST.set((0, 0));
    }
}

thread_local! {
    static MINE: Mine = const { Mine(RefCell::new(Vec::new())) };
    /// Handles of the context and the stream that were found last.
    static LAST: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

fn per_thread(context: &'static Context) -> Result<&'static Stream> {
    let wanted = context.handle();
    let (last, stream) = LAST.get();
    if last == wanted
        && let Some(stream) = stream::get(stream)
    {
        return Ok(stream);
    }
    let known = MINE.try_with(|mine| {
        let mut list = mine.0.borrow_mut();
        list.retain(|entry| stream::get(entry.1).is_some());
        list.iter().find(|entry| entry.0 == wanted).map(|entry| entry.1)
    });
    let handle = if let Ok(Some(handle)) = known {
        handle
    } else {
        let spare = context.spare.lock().pop();
        let handle = match spare {
            Some(handle) => handle,
            None => stream::create(context.gpu(), wanted, Role::PerThread, 0, 0)?,
        };
        // While the thread ends it cannot keep a list; the stream then ends with its context.
        let _ = MINE.try_with(|mine| mine.0.borrow_mut().push((wanted, handle)));
        handle
    };
    LAST.set((wanted, handle));
    stream::get(handle).ok_or(CUresult::INVALID_HANDLE)
}
