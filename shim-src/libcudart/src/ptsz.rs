//! Replacement of stream 0 by the per-thread default stream.

use vgpu_abi::driver::STREAM_PER_THREAD;
use vgpu_abi::runtime::Stream;

/// Returns the stream that a handle means in a program whose stream 0 is the per-thread default stream.
pub fn per_thread(stream: Stream) -> Stream {
    if stream == Stream::NULL { STREAM_PER_THREAD } else { stream }
}
