//! Kernel launches: an unchecked payload becomes a launch, or is refused (Q16).

use vgpu_image::layout::Layout;
use vgpu_wire::body::launch::{Launch as Message, PARAM_BYTES_MAX};
use vgpu_wire::v1::payload::{LAUNCH_LEGACY, LAUNCH_PARAMS_MAX, LAUNCH_RAW, Launch};
use zerocopy::FromBytes;

use super::owner::Owner;
use super::request::{Reply, Request};
use super::status;

/// Arranges the values of a legacy launch in the kernel's parameter layout. As with an array of pointers to
/// values, each parameter takes as many bytes as the kernel declares, even if the payload has fewer for this
/// value and the next value's bytes follow. Bytes beyond the payload are never read: `None` is returned.
fn arrange(layout: &Layout, params: u32, rest: &[u8]) -> Option<Vec<u8>> {
    let count = usize::try_from(params).ok().filter(|_| params <= LAUNCH_PARAMS_MAX)?;
    let (sizes, values) = rest.split_at_checked(4 * count)?;
    if layout.params.len() > count {
        return None;
    }
    let mut buffer = vec![0; layout.bytes as usize];
    let mut at = 0_usize;
    for (param, size) in layout.params.iter().zip(sizes.as_chunks().0) {
        let value = values.get(at..)?.get(..param.size as usize)?;
        buffer[param.offset as usize..][..value.len()].copy_from_slice(value);
        at = at.checked_add(u32::from_le_bytes(*size) as usize)?;
    }
    Some(buffer)
}

impl Owner {
    pub(super) fn launch(&mut self, request: &Request<'_>) -> Result<Reply, u32> {
        let (launch, rest) = Launch::read_from_prefix(request.data).map_err(|_| status::INVALID_VALUE)?;
        let function = self.function(launch.function.get())?;
        let arranged;
        let params = match launch.mode.get() {
            LAUNCH_RAW => rest.get(..launch.param_bytes.get() as usize).ok_or(status::INVALID_VALUE)?,
            LAUNCH_LEGACY => {
                let module = self.module(function.module).ok_or(status::INVALID_HANDLE)?;
                let layout = module.layouts.get(&function.name).ok_or(status::INVALID_VALUE)?;
                arranged = arrange(layout, launch.params.get(), rest).ok_or(status::INVALID_VALUE)?;
                &arranged[..]
            }
            _ => return Err(status::INVALID_VALUE),
        };
        if params.len() > PARAM_BYTES_MAX as usize {
            return Err(status::INVALID_VALUE);
        }
        let message = Message {
            function: function.number,
            stream: self.stream(launch.stream.get()),
            grid: launch.grid.map(zerocopy::little_endian::U32::get),
            block: launch.block.map(zerocopy::little_endian::U32::get),
            cluster: [0; 3],
            shared_bytes: launch.shared_bytes.get(),
            flags: 0,
            param_bytes: params.len() as u32,
            priority: 0,
            reserved: 0,
        };
        self.port.send(&message, params)?;
        // The host waits for every launch, so the kernel's errors are the launch's.
        self.port.finish()?;
        Ok(Reply::NONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(params: &[(u32, u32)]) -> Layout {
        let mut layout = Layout::default();
        for &(size, align) in params {
            layout.push(size, align).unwrap();
        }
        layout
    }

    fn payload(sizes: &[u32], values: &[u8]) -> Vec<u8> {
        let mut bytes: Vec<u8> = sizes.iter().flat_map(|size| size.to_le_bytes()).collect();
        bytes.extend_from_slice(values);
        bytes
    }

    #[test]
    fn values_go_to_their_offsets() {
        let layout = layout(&[(4, 4), (8, 8)]);
        let values: Vec<u8> = (1..=12).collect();
        let buffer = arrange(&layout, 2, &payload(&[4, 8], &values)).unwrap();
        assert_eq!(buffer, [1, 2, 3, 4, 0, 0, 0, 0, 5, 6, 7, 8, 9, 10, 11, 12]);
    }

    #[test]
    fn a_value_that_is_too_short_is_read_past() {
        // The guest sends eight bytes for each value, whatever the parameter's size; then four for the first,
        // whose parameter has eight.
        let narrow = layout(&[(4, 4), (4, 4)]);
        let values: Vec<u8> = (1..=16).collect();
        let buffer = arrange(&narrow, 2, &payload(&[8, 8], &values)).unwrap();
        assert_eq!(buffer, [1, 2, 3, 4, 9, 10, 11, 12]);
        let wide = layout(&[(8, 8), (8, 8)]);
        let buffer = arrange(&wide, 2, &payload(&[4, 8], &values)).unwrap();
        assert_eq!(buffer, [1, 2, 3, 4, 5, 6, 7, 8, 5, 6, 7, 8, 9, 10, 11, 12]);
    }

    #[test]
    fn nothing_is_read_beyond_the_payload() {
        let layout = layout(&[(8, 8)]);
        assert_eq!(arrange(&layout, 1, &payload(&[4], &[1; 4])), None);
        assert_eq!(arrange(&layout, 1, &[8, 0, 0]), None);
        assert_eq!(arrange(&layout, 0, &[0; 64]), None, "fewer than the kernel has");
        assert_eq!(arrange(&layout, 257, &[0; 4096]), None);
        assert_eq!(arrange(&layout, u32::MAX, &[0; 64]), None);
        let two = self::layout(&[(4, 4), (4, 4)]);
        assert_eq!(arrange(&two, 2, &payload(&[u32::MAX, 4], &[0; 64])), None);
    }
}
