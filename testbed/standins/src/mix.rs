//! The kernel of programs that verify their results: it replaces each word `x` by `x * a + b` a given number
//! of times.

use std::ffi::CStr;

/// Name of the kernel.
pub const NAME: &CStr = c"mix";

/// PTX of the kernel, which computes `p[i] = p[i] * a + b` `steps` times for `n` words. `steps` must be at
/// least 1.
pub const PTX: &CStr = c"
.version 6.0
.target sm_50
.address_size 64
.visible .entry mix(.param .u64 p, .param .u32 n, .param .u32 a, .param .u32 b, .param .u32 steps)
{
    .reg .pred %q<3>;
    .reg .b32 %r<11>;
    .reg .b64 %d<5>;
    ld.param.u64 %d1, [p];
    ld.param.u32 %r1, [n];
    ld.param.u32 %r2, [a];
    ld.param.u32 %r3, [b];
    ld.param.u32 %r10, [steps];
    mov.u32 %r4, %ctaid.x;
    mov.u32 %r5, %ntid.x;
    mov.u32 %r6, %tid.x;
    mad.lo.u32 %r7, %r4, %r5, %r6;
    setp.ge.u32 %q1, %r7, %r1;
    @%q1 bra done;
    cvta.to.global.u64 %d2, %d1;
    mul.wide.u32 %d3, %r7, 4;
    add.s64 %d4, %d2, %d3;
    ld.global.u32 %r8, [%d4];
    mov.u32 %r9, 0;
again:
    mad.lo.u32 %r8, %r8, %r2, %r3;
    add.u32 %r9, %r9, 1;
    setp.lt.u32 %q2, %r9, %r10;
    @%q2 bra again;
    st.global.u32 [%d4], %r8;
done:
    ret;
}
";

/// Parameters of the kernel, without the address.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// Number of words that the kernel processes.
    pub words: u32,
    /// Factor by which each step multiplies a word.
    pub a: u32,
    /// Number that each step adds to a word.
    pub b: u32,
    /// Number of steps, at least 1.
    pub steps: u32,
}

impl Mix {
    /// Returns a function that computes the kernel's result for a word. All steps are combined into one step,
    /// `x * factor + rest`.
    pub fn whole(self) -> impl Fn(u32) -> u32 {
        let step = |(factor, rest): (u32, u32)| {
            (factor.wrapping_mul(self.a), rest.wrapping_mul(self.a).wrapping_add(self.b))
        };
        let (factor, rest) = (0..self.steps).fold((1, 0), |all, _| step(all));
        move |word| word.wrapping_mul(factor).wrapping_add(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_steps_are_one() {
        let (a, b, steps) = (5, 7, 256);
        let stepped = (0..steps).fold(123_u32, |word, _| word.wrapping_mul(a).wrapping_add(b));
        assert_eq!(Mix { words: 1, a, b, steps }.whole()(123), stepped);
    }
}
