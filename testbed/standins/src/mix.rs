//! The kernel of programs that compare all they get back: it replaces each word `x` by `x * a + b`, and that
//! as often as it is told to.

use std::ffi::CStr;

/// The kernel's name.
pub const NAME: &CStr = c"mix";

/// `p[i] = p[i] * a + b`, `steps` times, for `n` words. `steps` is at least 1.
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

/// The kernel's parameters, without the address.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// Words that it works on.
    pub words: u32,
    /// What a word is multiplied by in each step.
    pub a: u32,
    /// What is added to it in each step.
    pub b: u32,
    /// Steps, at least 1.
    pub steps: u32,
}

impl Mix {
    /// Returns what the kernel makes of a word. All steps together are one step, `x * factor + rest`, whose
    /// factor and rest are computed here once for all words.
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
