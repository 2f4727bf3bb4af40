//! Instructions of the fuzzer that compute: every spelling with the classes of its operands.
//!
//! Spellings are written with alternatives in braces. The letters after them are the destination and the
//! sources: `h`, `r` and `d` are registers of 16, 32 and 64 bits, or constants; `H`, `R` and `D` registers
//! alone; `F` and `G` single and double precision; `n` a count, position or length; `p` a predicate, `o` one
//! that cannot be negated, `P` two predicates; `k` a constant of 8 bits.

use std::sync::LazyLock;

/// An instruction that computes its destination from its sources alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form {
    /// Spelling, such as `add.rn.f32`.
    pub spelling: String,
    /// Letter of the destination.
    pub dst: char,
    /// Letters of the sources.
    pub sources: &'static str,
}

const PATTERNS: &[(&str, &str)] = &[
    // Integer arithmetic.
    ("{add,sub,mul.lo,mul.hi,min,max,div,rem}.{s,u}16", "hhh"),
    ("{add,sub,mul.lo,mul.hi,min,max,div,rem}.{s,u}32", "rrr"),
    ("{add,sub,mul.lo,mul.hi,min,max,div,rem}.{s,u}64", "ddd"),
    ("{add,sub}.sat.s32", "rrr"),
    ("mul.wide.{s,u}16", "rhh"),
    ("mul.wide.{s,u}32", "drr"),
    ("{mad.lo,mad.hi,sad}.{s,u}16", "hhhh"),
    ("{mad.lo,mad.hi,sad}.{s,u}32", "rrrr"),
    ("{mad.lo,mad.hi,sad}.{s,u}64", "dddd"),
    ("mad.hi.sat.s32", "rrrr"),
    ("mad.wide.{s,u}16", "rhhr"),
    ("mad.wide.{s,u}32", "drrd"),
    ("{abs,neg}.s16", "hh"),
    ("{abs,neg}.s32", "rr"),
    ("{abs,neg}.s64", "dd"),
    ("dp4a.{s,u}32.{s,u}32", "rrrr"),
    ("dp2a.{lo,hi}.{s,u}32.{s,u}32", "rrrr"),
    // Logic, shifts and bit fields.
    ("{and,or,xor}.b16", "hhh"),
    ("{and,or,xor}.b32", "rrr"),
    ("{and,or,xor}.b64", "ddd"),
    ("{not,cnot,mov}.b16", "hh"),
    ("{not,cnot,mov}.b32", "rr"),
    ("{not,cnot,mov}.b64", "dd"),
    ("{popc,clz}.b32", "rr"),
    ("{popc,clz}.b64", "rd"),
    ("brev.b32", "rr"),
    ("brev.b64", "dd"),
    ("{shl.b,shr.b,shr.s,shr.u}16", "hhn"),
    ("{shl.b,shr.b,shr.s,shr.u}32", "rrn"),
    ("{shl.b,shr.b,shr.s,shr.u}64", "ddn"),
    ("shf.{l,r}.{wrap,clamp}.b32", "rrrn"),
    ("lop3.b32", "rrrrk"),
    ("prmt.b32{,.f4e,.b4e,.rc8,.ecl,.ecr,.rc16}", "rrrr"),
    ("bfe.{s,u}32", "rrnn"),
    ("bfe.{s,u}64", "ddnn"),
    ("bfi.b32", "rrrnn"),
    ("bfi.b64", "dddnn"),
    ("bfind{,.shiftamt}.{s,u}32", "rr"),
    ("bfind{,.shiftamt}.{s,u}64", "rd"),
    ("bmsk.{wrap,clamp}.b32", "rnn"),
    // Comparisons and selections.
    ("selp.{b,s,u}16", "hhhp"),
    ("selp.{b,s,u}32", "rrrp"),
    ("selp.{b,s,u}64", "dddp"),
    ("selp.f32", "rFFp"),
    ("selp.f64", "dGGp"),
    ("setp.{eq,ne,lt,le,gt,ge}.{s,u}16", "phh"),
    ("setp.{eq,ne,lt,le,gt,ge}.{s,u}32", "prr"),
    ("setp.{eq,ne,lt,le,gt,ge}.{s,u}64", "pdd"),
    ("setp.{lo,ls,hi,hs}.u16", "phh"),
    ("setp.{lo,ls,hi,hs}.u32", "prr"),
    ("setp.{lo,ls,hi,hs}.u64", "pdd"),
    ("setp.{eq,ne}.b16", "phh"),
    ("setp.{eq,ne}.b32", "prr"),
    ("setp.{eq,ne}.b64", "pdd"),
    ("setp.{eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}{,.ftz}.f32", "pFF"),
    ("setp.{eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}.f64", "pGG"),
    ("setp.{eq,ne,lt,ge,equ,ltu,geu,num,nan}.f16", "pHH"),
    ("setp.{eq,ne,lt,ge,equ,ltu,geu,num,nan}.bf16", "pHH"),
    ("setp.{eq,lt,geu,nan}.f16x2", "PRR"),
    ("setp.{eq,lt,geu,nan}.bf16x2", "PRR"),
    ("setp.{eq,lt,ge}.{and,or,xor}.{s,u}32", "prrp"),
    ("setp.{eq,lt,ge}.{and,or,xor}.s64", "pddp"),
    ("setp.{eq,lt,geu}.{and,or,xor}{,.ftz}.f32", "PFFp"),
    ("setp.{ne,gt}.s32", "Prr"),
    ("set.{eq,lt,ge}.{u32,s32,f32}.{s,u}32", "rrr"),
    ("set.{eq,ltu,ge}.{u32,s32,f32}.f32", "rFF"),
    ("set.{eq,lt}.{and,or,xor}.u32.s32", "rrrp"),
    ("set.{eq,lt}.{u32,f32}.{s,u}64", "rdd"),
    ("set.{eq,lt}.{u32,f32}.f64", "rGG"),
    ("set.{eq,lt}.{u16,f16}.f16", "hHH"),
    ("{and,or,xor}.pred", "poo"),
    ("{not,mov}.pred", "po"),
    // Single precision.
    ("{add,sub,mul}{,.rn,.rz,.rm,.rp}{,.ftz}{,.sat}.f32", "rFF"),
    ("{fma,mad}.{rn,rz,rm,rp}{,.ftz}{,.sat}.f32", "rFFF"),
    ("div.{rn,rz,rm,rp,approx,full}{,.ftz}.f32", "rFF"),
    ("{min,max}{,.ftz}{,.NaN}.f32", "rFF"),
    ("{abs,neg}{,.ftz}.f32", "rF"),
    ("copysign.f32", "rFF"),
    ("{rcp,sqrt}.{rn,rz,rm,rp,approx}{,.ftz}.f32", "rF"),
    ("{rsqrt,sin,cos,lg2,ex2}.approx{,.ftz}.f32", "rF"),
    ("tanh.approx.f32", "rF"),
    // Double precision.
    ("{add,sub,mul}{,.rn,.rz,.rm,.rp}.f64", "dGG"),
    ("{fma,mad}.{rn,rz,rm,rp}.f64", "dGGG"),
    ("div.{rn,rz,rm,rp}.f64", "dGG"),
    ("{min,max,copysign}.f64", "dGG"),
    ("{abs,neg}.f64", "dG"),
    ("{rcp,sqrt}.{rn,rz,rm,rp}.f64", "dG"),
    ("{rcp.approx.ftz,rsqrt.approx,rsqrt.approx.ftz}.f64", "dG"),
    // Half precision and bfloat16.
    ("{add,sub,mul}{,.rn}{,.ftz}{,.sat}.f16", "hHH"),
    ("{add,sub,mul}{,.rn}{,.ftz}{,.sat}.f16x2", "rRR"),
    ("{add,sub,mul}{,.rn}.bf16", "hHH"),
    ("{add,sub,mul}{,.rn}.bf16x2", "rRR"),
    ("fma.rn{,.ftz}{,.sat,.relu}.f16", "hHHH"),
    ("fma.rn{,.ftz}{,.sat,.relu}.f16x2", "rRRR"),
    ("fma.rn{,.relu}.bf16", "hHHH"),
    ("fma.rn{,.relu}.bf16x2", "rRRR"),
    ("{min,max}{,.ftz}{,.NaN}.f16", "hHH"),
    ("{min,max}{,.ftz}{,.NaN}.f16x2", "rRR"),
    ("{min,max}{,.NaN}.bf16", "hHH"),
    ("{min,max}{,.NaN}.bf16x2", "rRR"),
    ("{abs,neg}{,.ftz}.f16", "hH"),
    ("{abs,neg}{,.ftz}.f16x2", "rR"),
    ("{abs,neg}.bf16", "hH"),
    ("{abs,neg}.bf16x2", "rR"),
    ("{ex2.approx,ex2.approx.ftz,tanh.approx}.f16", "hH"),
    ("{ex2.approx,ex2.approx.ftz,tanh.approx}.f16x2", "rR"),
    ("{ex2.approx.ftz,tanh.approx}.bf16", "hH"),
    ("{ex2.approx.ftz,tanh.approx}.bf16x2", "rR"),
    // Conversions between integers.
    ("cvt{,.sat}.{s8,u8,s16,u16}.{s8,u8,s16,u16}", "hh"),
    ("cvt{,.sat}.{s8,u8,s16,u16}.{s8,u8,s16,u16,s32,u32}", "hr"),
    ("cvt{,.sat}.{s8,u8,s16,u16}.{s32,u32,s64,u64}", "hd"),
    ("cvt{,.sat}.{s8,u8,s16,u16,s32,u32}.{s8,u8,s16,u16}", "rh"),
    ("cvt{,.sat}.{s8,u8,s16,u16,s32,u32}.{s8,u8,s16,u16,s32,u32}", "rr"),
    ("cvt{,.sat}.{s16,u16,s32,u32}.{s32,u32,s64,u64}", "rd"),
    ("cvt{,.sat}.{s32,u32,s64,u64}.{s8,u8,s16,u16}", "dh"),
    ("cvt{,.sat}.{s32,u32,s64,u64}.{s8,u8,s16,u16,s32,u32}", "dr"),
    ("cvt{,.sat}.{s8,u8,s32,u32,s64,u64}.{s8,u8,s32,u32,s64,u64}", "dd"),
    // Conversions with floating-point numbers.
    ("cvt.{rn,rz,rm,rp}{,.sat}.f32.{s8,u8,s16,u16}", "rh"),
    ("cvt.{rn,rz,rm,rp}{,.sat}.f32.{s8,u8,s16,u16,s32,u32}", "rr"),
    ("cvt.{rn,rz,rm,rp}{,.sat}.f32.{s64,u64}", "rd"),
    ("cvt.{rn,rz,rm,rp}.f64.{s8,u8,s16,u16,s32,u32}", "dr"),
    ("cvt.{rn,rz,rm,rp}.f64.{s64,u64}", "dd"),
    ("cvt.{rn,rz,rm,rp}.{f16,bf16}.{s8,u8,s16,u16}", "hh"),
    ("cvt.{rn,rz,rm,rp}.{f16,bf16}.{s32,u32}", "hr"),
    ("cvt.{rn,rz,rm,rp}.{f16,bf16}.{s64,u64}", "hd"),
    ("cvt.{rni,rzi,rmi,rpi}{,.ftz}{,.sat}.{s16,u16,s8,u8}.f32", "hF"),
    ("cvt.{rni,rzi,rmi,rpi}{,.ftz}{,.sat}.{s32,u32,s16,u8}.f32", "rF"),
    ("cvt.{rni,rzi,rmi,rpi}{,.ftz}{,.sat}.{s64,u64}.f32", "dF"),
    ("cvt.{rni,rzi,rmi,rpi}{,.sat}.{s32,u32}.f64", "rG"),
    ("cvt.{rni,rzi,rmi,rpi}{,.sat}.{s64,u64}.f64", "dG"),
    ("cvt.{rni,rzi,rmi,rpi}{,.sat}.{s16,u16,s8,u8}.{f16,bf16}", "hH"),
    ("cvt.{rni,rzi,rmi,rpi}{,.sat}.{s32,u32}.{f16,bf16}", "rH"),
    ("cvt.{rni,rzi,rmi,rpi}{,.sat}.{s64,u64}.{f16,bf16}", "dH"),
    ("cvt{.rni,.rzi,.rmi,.rpi}{,.ftz}{,.sat}.f32.f32", "rF"),
    ("cvt{,.ftz}{,.sat}.f32.f32", "rF"),
    ("cvt{,.rni,.rzi,.rmi,.rpi}{,.sat}.f64.f64", "dG"),
    ("cvt{,.rni,.rzi,.rmi,.rpi}{,.sat}.f16.f16", "hH"),
    ("cvt.{rn,rz,rm,rp}{,.ftz}{,.sat}.f32.f64", "rG"),
    ("cvt{,.ftz}.f64.f32", "dF"),
    ("cvt.{rn,rz,rm,rp}{,.ftz}{,.sat}.f16.f32", "hF"),
    ("cvt.{rn,rz}{,.relu}.{f16,bf16}.f32", "hF"),
    ("cvt.{rn,rz,rm,rp}.f16.f64", "hG"),
    ("cvt{,.ftz}{,.sat}.f32.f16", "rH"),
    ("cvt.f32.bf16", "rH"),
    ("cvt.f64.f16", "dH"),
    ("cvt.{rn,rz}{,.relu}.{f16x2,bf16x2}.f32", "rFF"),
    ("cvt.rna{,.satfinite}.tf32.f32", "rF"),
    ("cvt.{rn,rz}{,.satfinite}{,.relu}.tf32.f32", "rF"),
    ("cvt.rn.satfinite{,.relu}.{e4m3x2,e5m2x2}.f32", "hFF"),
    ("cvt.rn.satfinite{,.relu}.{e4m3x2,e5m2x2}.f16x2", "hR"),
    ("cvt.rn{,.relu}.f16x2.{e4m3x2,e5m2x2}", "rH"),
];

/// Returns all spellings of a pattern.
fn expand(pattern: &str) -> Vec<String> {
    let Some((before, rest)) = pattern.split_once('{') else { return vec![pattern.to_owned()] };
    let (choices, after) = rest.split_once('}').expect("a pattern closes its braces");
    let tails = expand(after);
    let each = |choice: &str| tails.iter().map(|tail| format!("{before}{choice}{tail}")).collect::<Vec<_>>();
    choices.split(',').flat_map(each).collect()
}

static FORMS: LazyLock<Vec<Form>> = LazyLock::new(|| {
    let each = |&(pattern, operands): &(&str, &'static str)| {
        let (dst, sources) = operands.split_at(1);
        let dst = dst.chars().next().unwrap_or('r');
        expand(pattern).into_iter().map(move |spelling| Form { spelling, dst, sources })
    };
    PATTERNS.iter().flat_map(each).collect()
});

/// Returns all forms, those of one pattern after each other.
#[must_use]
pub fn all() -> &'static [Form] {
    &FORMS
}

/// Returns the forms of each pattern, so that every pattern can be equally frequent.
#[must_use]
pub fn patterns() -> &'static [Vec<Form>] {
    static BY_PATTERN: LazyLock<Vec<Vec<Form>>> = LazyLock::new(|| {
        let mut rest = all();
        let mut groups = Vec::with_capacity(PATTERNS.len());
        for (pattern, _) in PATTERNS {
            let (group, after) = rest.split_at(expand(pattern).len());
            groups.push(group.to_vec());
            rest = after;
        }
        groups
    });
    &BY_PATTERN
}
