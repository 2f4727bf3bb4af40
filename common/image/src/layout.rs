//! Layout of a kernel's parameters in its parameter buffer.

use vgpu_wire::body::launch::PARAM_BYTES_MAX;

/// Position of a parameter in the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Param {
    /// Offset in bytes from the start of the buffer.
    pub offset: u32,
    /// Size in bytes.
    pub size: u32,
}

/// The parameters of a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Layout {
    /// The parameters in their order. Offsets ascend, and no two parameters overlap.
    pub params: Vec<Param>,
    /// Length of the buffer in bytes: the end of the last parameter.
    pub bytes: u32,
}

/// Rules of a layout that parameters can break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// The parameters are longer than CUDA allows.
    #[error("parameters of more than {PARAM_BYTES_MAX} bytes")]
    TooLarge,
    /// Parameters overlap or are out of order.
    #[error("parameters that overlap")]
    Overlap,
}

impl Layout {
    /// Appends a parameter of `size` bytes at the next multiple of `align`. Fails if the buffer would exceed
    /// `PARAM_BYTES_MAX`.
    pub fn push(&mut self, size: u32, align: u32) -> Result<(), LayoutError> {
        let offset = self.bytes.checked_next_multiple_of(align.max(1)).ok_or(LayoutError::TooLarge)?;
        self.put(Param { offset, size })
    }

    /// Appends a parameter at its offset, which must not be below the end of the last one.
    pub fn put(&mut self, param: Param) -> Result<(), LayoutError> {
        let end = param.offset.checked_add(param.size).filter(|&end| end <= PARAM_BYTES_MAX);
        let end = end.ok_or(LayoutError::TooLarge)?;
        if param.offset < self.bytes {
            return Err(LayoutError::Overlap);
        }
        self.params.push(param);
        self.bytes = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_aligned_one_after_the_other() {
        let mut layout = Layout::default();
        for (size, align) in [(1, 1), (8, 8), (4, 4), (3, 1), (16, 16)] {
            layout.push(size, align).unwrap();
        }
        let offsets: Vec<u32> = layout.params.iter().map(|param| param.offset).collect();
        assert_eq!(offsets, [0, 8, 16, 20, 32]);
        assert_eq!(layout.bytes, 48);
    }

    #[test]
    fn limits_are_kept() {
        let mut layout = Layout::default();
        assert_eq!(layout.push(PARAM_BYTES_MAX + 1, 1), Err(LayoutError::TooLarge));
        assert_eq!(layout.push(u32::MAX, 1), Err(LayoutError::TooLarge));
        layout.push(PARAM_BYTES_MAX, 4).unwrap();
        assert_eq!(layout.push(1, 1), Err(LayoutError::TooLarge));
        assert_eq!(layout.put(Param { offset: 0, size: 4 }), Err(LayoutError::Overlap));
    }
}
