//! Spellings of instructions by family: those of real texts, similar ones, and spellings that must be
//! refused.

#![forbid(unsafe_code)]

use vgpu_ptx::ir::{Atomic, Binary, Compare, Float, Guard, Half, Op, Operand, Order, Reg, Round, Ty};
use vgpu_ptx::{Module, PtxError};

/// Parses one statement in a kernel with registers of each kind.
fn parse(statement: &str) -> Result<Vec<Op>, PtxError> {
    let text = format!(
        ".version 8.4\n.target sm_61\n.address_size 64\n.global .u32 g;\n.entry k(.param .u64 q)\n{{\n\
         .reg .pred %p<5>; .reg .b16 %h<5>; .reg .b32 %r<9>; .reg .b64 %d<9>; .shared .u32 s; .local .u32 l;\n\
         L: {statement}\n}}\n"
    );
    let kernel = Module::parse(text.into_bytes())?.kernel("k")?;
    Ok(kernel.code.into_iter().map(|inst| inst.op).collect())
}

fn one(statement: &str) -> Op {
    match parse(statement) {
        Ok(mut ops) if ops.len() == 1 => ops.swap_remove(0),
        other => panic!("{statement}: {other:?}"),
    }
}

/// Checks that each spelling of a list parses with these operands. `{a,b}` stands for either.
fn all_are(forms: &str, operands: &str) {
    for spelling in forms.split_whitespace().flat_map(expand) {
        let statement = format!("{spelling} {operands};");
        if let Err(error) = parse(&statement) {
            panic!("{error}");
        }
    }
}

fn none_is(forms: &str, operands: &str) {
    for spelling in forms.split_whitespace().flat_map(expand) {
        let statement = format!("{spelling} {operands};");
        match parse(&statement) {
            Err(PtxError::Unsupported { spelling: named, .. }) => assert_eq!(named, spelling),
            other => panic!("{statement}: {other:?}"),
        }
    }
}

fn expand(form: &str) -> Vec<String> {
    let Some((before, rest)) = form.split_once('{') else { return vec![form.to_owned()] };
    let (choices, after) = rest.split_once('}').unwrap();
    choices.split(',').flat_map(|choice| expand(&format!("{before}{choice}{after}"))).collect()
}

#[test]
fn integers() {
    all_are("{add,sub,min,max,rem,div}.{u32,s32} add.sat.s32 mul.{lo,hi}.{u32,s32}", "%r1, %r2, 3");
    all_are("{add,sub,min,max,rem,div}.{u64,s64} mul.{lo,hi}.{u64,s64}", "%d1, %d2, -3");
    all_are("{add,sub,min,max,rem,div}.{u16,s16} mul.{lo,hi}.{u16,s16}", "%h1, %h2, %h3");
    all_are("mul.wide.{u32,s32}", "%d1, %r2, 3");
    all_are("mul.wide.{u16,s16}", "%r1, %h2, 3");
    all_are("mad.{lo,hi}.{u32,s32} mad.hi.sat.s32", "%r1, %r2, %r3, %r4");
    all_are("mad.wide.{u32,s32}", "%d1, %r2, %r3, %d4");
    all_are("{abs,neg}.s32 {not,cnot,brev,popc,clz}.b32 bfind.{u32,s32} bfind.shiftamt.u32", "%r1, %r2");
    all_are("{abs,neg}.s64 {not,cnot,brev}.b64", "%d1, %d2");
    all_are("{popc,clz}.b64 bfind.{u64,s64}", "%r1, %d2");
    all_are("{and,or,xor}.b32 {shl,shr}.b32 shr.{u32,s32} bmsk.{wrap,clamp}.b32", "%r1, %r2, 5");
    all_are("{shl,shr}.b64 shr.{u64,s64}", "%d1, %d2, %r5");
    all_are("{shl,shr}.b16 shr.{u16,s16}", "%h1, %h2, 8");
    all_are(
        "bfe.{u32,s32} shf.{l,r}.{wrap,clamp}.b32 prmt.b32 prmt.b32.{f4e,b4e,rc8,ecl,ecr,rc16}",
        "%r1, %r2, %r3, 4",
    );
    all_are("dp4a.{u32,s32}.{u32,s32} dp2a.{lo,hi}.{u32,s32}.{u32,s32}", "%r1, %r2, %r3, %r4");
    all_are("sad.{u32,s32}", "%r1, %r2, 3, %r4");
    all_are("sad.{u16,s16}", "%h1, %h2, 3, %h4");
    all_are("sad.{u64,s64}", "%d1, %d2, 3, %d4");
    all_are("bfe.{u64,s64}", "%d1, %d2, 3, 4");
    all_are("bfi.b32 lop3.b32", "%r1, %r2, %r3, 2, 30");
    all_are("bfi.b64", "%d1, %d2, %d3, 2, 30");
    none_is(
        "add.b32 add.sat.u32 add.cc.u16 addc.b32 mad.cc.u32 madc.wide.u32 mul.s32 mul24.lo.s32 sad.b32 mul.wide.s64 mad.wide.u64 mad.lo.sat.s32",
        "",
    );
    none_is(
        "and.s32 shl.u32 popc.u32 bfe.b32 shf.l.b32 add.rn.s32 abs.u32 dp4a.s32 vadd.s32.s32.s32 rem.f32",
        "",
    );
    assert_eq!(
        one("mad.wide.s32 %d0, %r0, -2, %d1;"),
        Op::Mad {
            half: Half::Wide,
            ty: Ty::S32,
            sat: false,
            dst: Reg(0),
            a: Operand::Reg(Reg(1)),
            b: Operand::Imm(0xFFFF_FFFE),
            c: Operand::Reg(Reg(2)),
        }
    );
}

#[test]
fn floating_point() {
    all_are(
        "{add,sub,mul}.f32 {add,sub,mul}.{rn,rz,rm,rp}.ftz.sat.f32 {min,max}.f32 {min,max}.ftz.NaN.f32",
        "%r1, %r2, 0f3F800000",
    );
    all_are(
        "div.{approx,full}.f32 div.{approx,full}.ftz.f32 div.{rn,rz,rm,rp}.ftz.f32 copysign.f32",
        "%r1, %r2, %r3",
    );
    all_are(
        "{add,sub,mul,min,max}.f64 {add,mul}.rz.f64 div.rn.f64 copysign.f64",
        "%d1, %d2, 0d3FF0000000000000",
    );
    all_are("{add,sub,mul}.f16 add.rn.ftz.sat.f16 {min,max}.{f16,bf16} max.NaN.f16", "%h1, %h2, %h3");
    all_are("{add,sub,mul}.f16x2 mul.rn.bf16x2 {min,max}.{f16x2,bf16x2}", "%r1, %r2, %r3");
    all_are(
        "fma.{rn,rz}.ftz.sat.f32 mad.rn.f32 fma.rn.{f16x2,bf16x2} fma.rn.relu.f16x2",
        "%r1, %r2, %r3, %r4",
    );
    all_are("fma.rn.f64 mad.rp.f64", "%d1, %d2, %d3, %d4");
    all_are("fma.rn.{f16,bf16} fma.rn.relu.bf16", "%h1, %h2, %h3, %h4");
    all_are(
        "{abs,neg}.{f32,ftz.f32,f16x2,bf16x2} {rcp,sqrt}.{approx,approx.ftz,rn,rn.ftz,rz}.f32",
        "%r1, %r2",
    );
    all_are(
        "{rsqrt,sin,cos,lg2,ex2,tanh}.approx.f32 {rsqrt,sin,cos,lg2,ex2}.approx.ftz.f32 {ex2,tanh}.approx.f16x2",
        "%r1, %r2",
    );
    all_are("{abs,neg}.f64 {rcp,sqrt}.rn.f64 {rcp,rsqrt}.approx.ftz.f64 rsqrt.approx.f64", "%d1, %d2");
    all_are("ex2.approx.ftz.bf16x2 tanh.approx.bf16x2", "%r1, %r2");
    none_is(
        "div.f32 fma.f32 sqrt.f32 rcp.ftz.f32 add.ftz.f64 fma.rn.relu.f32 sin.f32 ex2.approx.f64 ex2.approx.bf16 tanh.approx.ftz.f16 rcp.approx.f64 add.rz.f16 mul.lo.f32",
        "",
    );
    assert_eq!(
        one("add.rz.ftz.f32 %r0, 0fBF800000, %r1;"),
        Op::Binary {
            op: Binary::Add,
            ty: Ty::F32,
            float: Float { round: Round::Zero, ftz: true, sat: false },
            dst: Reg(0),
            a: Operand::Imm(0xBF80_0000),
            b: Operand::Reg(Reg(1)),
        }
    );
}

#[test]
fn comparisons() {
    all_are("setp.{eq,ne,lt,le,gt,ge}.{u32,s32} setp.{lo,ls,hi,hs}.u32 setp.{eq,ne}.b32", "%p1, %r1, 5");
    all_are("setp.{eq,lt,equ,neu,ltu,leu,gtu,geu,num,nan}.{f32,ftz.f32}", "%p1|%p2, %r1, %r2");
    all_are("setp.lt.{and,or,xor}.{s32,f32} setp.ge.and.ftz.f32", "%p1|_, %r1, %r2, !%p3");
    all_are("setp.{eq,lt}.{u16,s16,f16,bf16} setp.eq.b16", "%p1, %h1, %h2");
    all_are("setp.{eq,ltu}.{f16x2,bf16x2}", "%p1|%p2, %r1, %r2");
    all_are("setp.gt.{u64,s64} setp.lt.f64", "%p1, %d1, %d2");
    all_are("set.{eq,lt}.{u32,s32,f32}.s32 set.ltu.ftz.u32.f32", "%r1, %r2, %r3");
    all_are("selp.{b32,u32,s32}", "%r1, %r2, 0, !%p1");
    all_are("selp.f32", "%r1, 0f00000000, %r3, %p1");
    none_is(
        "setp.lt.b32 setp.lo.s32 setp.ltu.s32 setp.eq.ftz.s32 setp.eq.pred setp.s32 selp.pred set.eq.u64.s32 slct.f32.s32",
        "",
    );
    let Op::Setp { compare, complement, combine, .. } = one("setp.hs.u32 %p0|%p1, %r0, %r1;") else {
        panic!()
    };
    assert_eq!((compare, complement, combine), (Compare::Ge, Some(Reg(1)), None));
}

#[test]
fn moves_and_conversions() {
    all_are("mov.{b32,u32,s32,f32}", "%r1, %r2");
    all_are("mov.{b32,u32}", "%r1, s");
    all_are("mov.u32", "%r1, {%h1, 0}");
    all_are("mov.b32", "{%h1, _}, %r1");
    all_are("mov.b64", "%d1, {%h1, %h2, %h3, %h4}");
    all_are("mov.b64", "{%r1, %r2}, %d1");
    all_are("mov.u64", "%d1, g+4");
    all_are("mov.u64", "%d1, generic(s)");
    all_are("mov.pred", "%p1, 0");
    all_are("not.pred mov.pred", "%p1, %p2");
    all_are("{and,or,xor}.pred", "%p1, %p2, !%p3");
    for special in
        "tid.x ntid.y ctaid.z nctaid.x laneid warpid smid lanemask_lt envreg2 clock gridid".split(' ')
    {
        all_are("mov.u32", &format!("%r1, %{special}"));
    }
    for special in ["cluster_ctarank", "cluster_nctarank", "cluster_ctaid.x", "clusterid.y", "nclusterid.z"] {
        all_are("mov.u32", &format!("%r1, %{special}"));
    }
    assert_eq!(one("mov.u32 %r0, %cluster_nctaid.y;"), one("mov.u32 %r0, 1;"));
    all_are("mov.u64", "%d1, %clock64");
    all_are("mov.u32", "%r1, WARP_SZ");
    all_are(
        "cvt.u32.{u8,s8,u16,s16,u32} cvt.{u8,s8,u16,s16}.u32 cvt.{rni,rzi,rmi,rpi}.ftz.s32.f32",
        "%r1, %r2",
    );
    all_are(
        "cvt.{rn,rz,rm,rp}.f32.{s32,u32} cvt.{rni,rmi}.f32.f32 cvt.sat.f32.f32 cvt.rzi.s8.f32",
        "%r1, %r2",
    );
    all_are("cvt.f32.{f16,bf16} cvt.rzi.s32.f16", "%r1, %h2");
    all_are("cvt.rn.{f16,bf16}.f32 cvt.rn.sat.f16.f32 cvt.rn.f16.s32", "%h1, %r2");
    all_are("cvt.{f64.f32,rn.f64.s64,s64.s32,u64.u32}", "%d1, %d2");
    all_are("cvt.rn.ftz.f32.f64 cvt.rn.f32.{s64,u64} cvt.u32.u64", "%r1, %d2");
    all_are("cvt.rn.{f16x2,bf16x2}.f32 cvt.rz.relu.f16x2.f32", "%r1, %r2, %r3");
    none_is(
        "cvt.f16.f32 cvt.f32.s32 cvt.s32.f32 cvt.rn.f64.f32 cvt.rn.s32.s32 cvt.rn.f32.f32 cvt.rni.u32.s32",
        "",
    );
    none_is(
        "cvt.rna.relu.tf32.f32 cvt.tf32.f32 cvt.rn.e4m3x2.f32 cvt.rz.satfinite.e4m3x2.f32 cvt.rn.f16.e4m3x2 cvt.f16x2.e5m2x2 cvt.b32.u32 cvt.ftz.u32.u16 mov.v2.u32 mov.b8 mov.b128",
        "",
    );
    all_are("cvt.{rna,rna.satfinite,rn,rz.relu}.tf32.f32", "%r1, %r2");
    all_are("cvt.rn.relu.{f16,bf16}.f32", "%h1, %r2");
    all_are("cvt.rn{,.relu}.f16x2.{e4m3x2,e5m2x2}", "%r1, %h2");
    all_are("cvt.rn.satfinite{,.relu}.{e4m3x2,e5m2x2}.f32", "%h1, %r2, %r3");
    all_are("cvt.rn.satfinite{,.relu}.{e4m3x2,e5m2x2}.f16x2", "%h1, %r2");
    all_are("cvta.{global,const,shared,local,param}.u64 cvta.to.{global,shared}.u64", "%d1, %d2");
    all_are("isspacep.{global,shared,local}", "%p1, %d2");
    // Addresses of global memory are generic.
    assert_eq!(one("cvta.to.global.u64 %d0, %d1;"), one("mov.u64 %d0, %d1;"));
    assert_eq!(
        one("mov.b64 %d0, {%r0, %r1};"),
        Op::Pack { ty: Ty::B64, dst: Reg(0), src: vec![Operand::Reg(Reg(1)), Operand::Reg(Reg(2))] }
    );
}

#[test]
fn memory() {
    all_are(
        "ld.{global,shared,local}.{u32,b32,f32} ld.global.{nc,ca,cg,cs,lu,cv}.u32 ld.u32 ldu.global.f32",
        "%r1, [%d1]",
    );
    all_are(
        "ld.volatile.global.u32 ld.volatile.u32 ld.relaxed.gpu.u32 ld.acquire.sys.global.u32 ld.weak.u32",
        "%r1, [%d1+4]",
    );
    all_are(
        "ld.global.{u8,s8,b8,u16,s16} ld.global.L1::no_allocate.L2::128B.u32 ld.const.u32",
        "%r1, [%d1+-4]",
    );
    all_are("ld.global.nc.v2.u32 ld.global.v2.{f32,u16,u8}", "{%r1, _}, [%d1]");
    all_are("ld.shared.v4.{u32,u8}", "{%r1, %r2, %r3, %r4}, [%r5]");
    all_are("ld.param.{u64,s32,u8}", "%d1, [q]");
    all_are(
        "st.{global,shared,local}.{u32,b8,u16} st.volatile.global.u32 st.release.gpu.u32 st.global.{wb,cg,cs,wt}.f32",
        "[%d1], %r1",
    );
    all_are("st.shared.v2.f32", "[s], {%r1, 0f00000000}");
    all_are("st.u8", "[%d1], 7");
    all_are(
        "atom.{global,shared}.{and,or,xor,exch}.b32 atom.{add,min,max}.{u32,s32} atom.{inc,dec}.u32 atom.add.f32",
        "%r1, [%d1], %r2",
    );
    all_are("atom.cas.b32 atom.acq_rel.gpu.global.cas.b32", "%r1, [%d1], %r2, %r3");
    all_are("atom.add.u64 atom.{min,max}.s64 atom.add.f64 atom.exch.b64", "%d1, [%d1], %d2");
    all_are("red.{add,max}.s32 red.shared.add.u32 red.relaxed.cta.add.u32 red.add.noftz.f16x2", "[%d1], %r2");
    all_are("membar.{cta,gl,sys} fence.{acq_rel,sc,acquire,release}.{cta,cluster,gpu,sys}", "");
    all_are(
        "fence.proxy.{alias,async,async.global,async.shared::cta} fence.mbarrier_init.release.cluster",
        "",
    );
    all_are("prefetch.global.L2 prefetch.L1 prefetch.global.L2::{evict_last,evict_normal}", "[%d1]");
    all_are("discard.global.L2 applypriority.global.L2::evict_normal", "[%d1], 128");
    all_are("ld.mmio.relaxed.sys{,.global}.u32 ld.relaxed.cluster.shared::cluster.u32", "%r1, [%d1]");
    all_are("st.mmio.relaxed.sys.global.u32", "[%d1], %r1");
    none_is(
        "ld.relaxed.u32 ld.global.v8.f32 ld.global.v4.u64 ld.b128 ld.global.pred st.acquire.gpu.u32 red.exch.b32 red.cas.b32",
        "",
    );
    none_is(
        "ld.mmio.u32 ld.mmio.relaxed.gpu.u32 ld.global.L2::cache_hint.L2::cache_hint.u32 red.acquire.gpu.add.u32 red.acq_rel.gpu.add.u32",
        "",
    );
    none_is(
        "atom.const.add.u32 atom.gpu.sys.add.u32 atom.gpu.global.add.gpu.u32 atom.add.add.u32 atom.u32 atom.add atom.cas.L2::cache_hint.b32",
        "",
    );
    none_is(
        "createpolicy.L2::evict_last.b64 createpolicy.fractional.L2::evict_last.L2::evict_last.b64 createpolicy.cvt.L1.b64 createpolicy.fractional.L2::evict_first.b32 discard.L2::128B fence.proxy fence.proxy.tensormap",
        "",
    );
    none_is(
        "atom.add.s64 atom.add.f16 atom.and.u32 cp.async.ca.global.shared cp.async.bulk.wait_all cp.reduce.async",
        "",
    );
    all_are(
        "cp.async.{ca,cg}.shared{,::cta}.global{,.L2::64B,.L2::128B,.L2::256B}",
        "[%r1], [%d1+8], 16, %r2",
    );
    all_are("cp.async.ca.shared.global", "[%r1], [%d1], 4");
    all_are("cp.async.wait_group", "3");
    all_are("cp.async.commit_group cp.async.wait_all", "");
    for wrong in
        ["cg.shared.global [%r1], [%d1], 8;", "ca.shared.global [%r1], [%d1], 12;", "wait_group %r1;"]
    {
        assert!(matches!(parse(&format!("cp.async.{wrong}")), Err(PtxError::Syntax { .. })), "{wrong}");
    }
    for wrong in
        ["ld.shared.u32 %r1, [l];", "st.param.u64 [q], %d1;", "ld.u32 %r1, [%h1];", "ld.v2.u32 %r1, [%d1];"]
    {
        assert!(matches!(parse(wrong), Err(PtxError::Syntax { .. })), "{wrong}");
    }
    for order in ["sys.global.add", "global.sys.add", "global.add.sys", "global.gpu.acq_rel.add"] {
        all_are(&format!("atom.{order}.u32"), "%r1, [%d1], %r2");
    }
    // Cache policies are read and dropped.
    all_are(
        "ld.{global,relaxed.sys.global}{,.L1::evict_last}.L2::cache_hint{,.L2::128B}.b32 ld.global.nc.L2::cache_hint.b32",
        "%r1, [%d1], %d2",
    );
    assert_eq!(one("ld.global.L2::cache_hint.b32 %r0, [%d0], %d1;"), one("ld.global.b32 %r0, [%d0];"));
    all_are("st.global.L1::evict_first.L2::cache_hint.v2.b32", "[%d1], {%r1, %r2}, %d2");
    all_are("atom.global.gpu.acq_rel.add.L2::cache_hint.f32", "%r1, [%d1], %r2, %d2");
    all_are("red.relaxed.gpu.global.add.noftz.L2::cache_hint.{f16x2,bf16x2}", "[%d1], %r2, %d2");
    all_are("cp.async.ca.shared.global.L2::cache_hint{,.L2::128B}", "[%r1], [%d1], 16, %d2");
    all_are("cp.async.ca.shared.global.L2::cache_hint", "[%r1], [%d1], 16, %r2, %d2");
    all_are("createpolicy.fractional.L2::{evict_last,evict_first.L2::evict_unchanged}.b64", "%d1, 0.5");
    all_are("createpolicy.fractional.L2::evict_{normal,unchanged}.b64", "%d1");
    all_are("createpolicy.range{,.global}.L2::evict_last.L2::evict_first.b64", "%d1, [%d2], 4096, %r1");
    all_are("createpolicy.cvt.L2.b64", "%d1, %d2");
    for wrong in [
        "ld.global.L2::cache_hint.b32 %r1, [%d1];",
        "ld.global.L2::cache_hint.b32 %r1, [%d1], %r2;",
        "red.global.add.L2::cache_hint.u32 [%d1], %r1;",
        "st.global.b32 [%d1], %r1, %d2;",
        "createpolicy.range.L2::evict_last.b64 %d1, [%d2], 4096;",
        "createpolicy.fractional.L2::evict_last.b64 %r1;",
        "cp.async.ca.shared.global.L2::cache_hint [%r1], [%d1], 16, %r2;",
        "discard.global.L2 [%d1];",
    ] {
        assert!(matches!(parse(wrong), Err(PtxError::Syntax { .. })), "{wrong}: {:?}", parse(wrong));
    }
    let Op::Ld { mem, .. } = one("ld.global.cv.u32 %r0, [%d0];") else { panic!() };
    assert_eq!(mem.order, Order::Relaxed);
    none_is("ld.acquire.gpu.global.cv.u32 ld.relaxed.gpu.cv.u32 st.global.cv.u32 atom.and.noftz.b32", "");
    let Op::Atom { op, mem, dst, .. } = one("red.release.sys.global.add.u32 [%d0], 1;") else { panic!() };
    assert_eq!((op, mem.order, dst), (Atomic::Add, Order::Release, None));
}

#[test]
fn warps_and_blocks() {
    all_are("shfl.sync.{up,down,bfly,idx}.b32", "%r1|%p1, %r2, 1, 31, -1");
    all_are("shfl.{up,idx}.b32", "%r1, %r2, 1, 31");
    all_are("vote.sync.{all,any,uni}.pred vote.all.sync.pred", "%p1, !%p2, -1");
    all_are("vote.{all,any}.pred", "%p1, %p2");
    all_are("vote.sync.ballot.b32 vote.ballot.sync.b32", "%r1, %p2, %r3");
    all_are("match.any.sync.b32", "%r1, %r2, -1");
    all_are("match.all.sync.b64", "%r1|%p1, %d2, -1");
    all_are("redux.sync.{add,min,max}.{u32,s32} redux.sync.{and,or,xor}.b32", "%r1, %r2, -1");
    all_are("activemask.b32", "%r1");
    all_are("bar.sync barrier.sync barrier.sync.aligned bar.cta.sync bar.warp.sync", "0");
    all_are("bar.{sync,arrive} barrier.arrive", "%r1, 64");
    all_are("bar.red.{and,or}.pred barrier.red.and.pred", "%p1, 0, !%p2");
    all_are("bar.red.popc.u32", "%r1, 1, 64, %p2");
    all_are("nanosleep.u32", "20");
    none_is(
        "shfl.sync.b32 vote.sync.ballot.pred match.any.b32 redux.sync.add.f32 bar.warp bar bar.red.xor.pred elect.sync",
        "",
    );
    let Op::BarRed { threads, p, .. } = one("bar.red.or.pred %p0, 0, %r0, !%p1;") else { panic!() };
    assert_eq!((threads, p), (Some(Operand::Reg(Reg(1))), Guard { reg: Reg(2), negated: true }));
}

#[test]
fn matrices() {
    let list = |count: usize| format!("{{{}}}", vec!["%r1"; count].join(", "));
    let four = |d, a, b, c| [list(d), list(a), list(b), list(c)].join(", ");
    all_are("mma.sync.aligned.m8n8k4.{row,col}.{row,col}.f32.f16.f16.f32", &four(8, 2, 2, 8));
    all_are("mma.sync.aligned.m8n8k4.row.row.f16.f16.f16.f16", &four(4, 2, 2, 4));
    all_are("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", &four(4, 2, 1, 4));
    all_are("mma.sync.aligned.m16n8k16.row.col.f32.{f16.f16,bf16.bf16}.f32", &four(4, 4, 2, 4));
    all_are("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", &four(2, 4, 2, 2));
    all_are("mma.sync.aligned.m8n8k16.row.col.s32.{s8,u8}.{s8,u8}.s32", &four(2, 1, 1, 2));
    all_are("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32", &four(4, 2, 1, 4));
    all_are("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", &four(4, 4, 2, 4));
    all_are("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.u8.s8.s32", &four(4, 4, 2, 4));
    all_are("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", &four(4, 4, 2, 4));
    none_is(
        "mma.sync.aligned.m16n8k8.row.row.f32.f16.f16.f32 mma.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32",
        "",
    );
    none_is(
        "mma.sync.aligned.m16n8k8.row.col.satfinite.f32.f16.f16.f32 mma.sync.m8n8k4.row.col.f32.f16.f16.f32",
        "",
    );
    for (count, list) in [(1, "{%r1}"), (2, "{%r1, %r2}"), (4, "{%r1, %r2, %r3, %r4}")] {
        all_are(
            &format!("ldmatrix.sync.aligned.m8n8.x{count}{{,.trans}}{{,.shared}}.b16"),
            &format!("{list}, [%r1+16]"),
        );
        all_are(
            &format!("stmatrix.sync.aligned.m8n8.x{count}{{,.trans}}{{,.shared}}.b16"),
            &format!("[%d1], {list}"),
        );
    }
    all_are("movmatrix.sync.aligned.m8n8.trans.b16", "%r1, %r1");
    none_is("ldmatrix.sync.aligned.m8n8.x3.b16 ldmatrix.sync.aligned.m8n8.x4.global.b16", "");
    none_is("movmatrix.sync.aligned.m8n8.b16 stmatrix.sync.aligned.m16n8.x1.trans.b8", "");
    let Ok(ops) =
        parse(&format!("wmma.load.c.sync.aligned.col.m8n32k16.shared.f32 {}, [%r1], %r2;", list(8)))
    else {
        panic!()
    };
    assert_eq!(ops.iter().filter(|op| matches!(op, Op::Ld { .. })).count(), 8);
    let integers = |count: usize, a: usize, b: usize| four(count, a, b, count);
    all_are(
        "wmma.mma.sync.aligned.{row,col}.col.m16n16k16.s32.{s8.s8,u8.u8}.s32{,.satfinite}",
        &integers(8, 2, 2),
    );
    all_are("wmma.mma.sync.aligned.row.row.m8n32k16.s32.s8.s8.s32", &integers(8, 1, 4));
    all_are("wmma.mma.sync.aligned.row.col.m32n8k16.s32.s8.s8.s32", &integers(8, 4, 1));
    all_are("wmma.mma.sync.aligned.row.col.m8n8k32.s32.{s4.s4,u4.u4}.s32{,.satfinite}", &integers(2, 1, 1));
    all_are("wmma.load.{a,b}.sync.aligned.col.m16n16k16{,.global}.{s8,u8}", &format!("{}, [%d1]", list(2)));
    all_are("wmma.load.b.sync.aligned.col.m8n8k32.shared.{s4,u4}", &format!("{}, [%r1], 32", list(1)));
    all_are("wmma.store.d.sync.aligned.{row,col}.m8n8k32.s32", &format!("[%d1], {}, %r1", list(2)));
    none_is(
        "wmma.load.a.sync.aligned.col.m8n8k32.s4 wmma.load.b.sync.aligned.row.m8n8k32.u4 wmma.load.a.sync.aligned.row.m16n16k16.s4 wmma.load.c.sync.aligned.row.m8n8k32.f32",
        "",
    );
    none_is(
        "wmma.mma.sync.aligned.row.col.m16n16k16.s32.s8 wmma.mma.sync.aligned.row.col.m16n16k16.s32.s8.u8.s32 wmma.mma.sync.aligned.row.row.m8n8k32.s32.s4.s4.s32 wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32.satfinite",
        "",
    );
    none_is(
        "wmma.mma.sync.aligned.row.col.m16n16k16.f32.s8.s8.f32 wmma.mma.sync.aligned.row.col.m16n16k16.s32.s32 wmma.mma.xor.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32",
        "",
    );
    assert!(matches!(
        parse(&format!("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {};", four(4, 2, 2, 4))),
        Err(PtxError::Syntax { message, .. }) if message == "expected 1 elements, found 2"
    ));
}

#[test]
fn control() {
    for fine in [
        "bra L;",
        "bra.uni L;",
        "@%p1 bra L;",
        "@!%p1 ret;",
        "exit;",
        "ret.uni;",
        "@%p1 trap;",
        "{ M: bra M; }",
        "mov.u64 %d1, g[0];",
        "ld.shared.u32 %r1, s[1];",
        "st.local.u32 l[0], %r1;",
        "T: .branchtargets L;\nbrx.idx %r1, T;",
        "T: .branchtargets L, M, L;\n@!%p1 brx.idx.uni %r1, T;\nM: ret;",
        ";",
    ] {
        if let Err(error) = parse(fine) {
            panic!("{fine}: {error}");
        }
    }
    let params = "{ .param .b64 a; .param .b64 b; .param .b32 c; ";
    for fine in [
        "st.param.b64 [a+0], %d1;",
        "st.param.b64 [b], 7;",
        "st.param.b8 [c], %r1;",
        "ld.param.s8 %r1, [c];",
        "ld.param.b32 %d1, [c];",
        "ld.param.u32 %r1, [a];",
        "p: .callprototype (.param .b32 _) _ (.param .b64 _);\ncall (c), %d1, (a), p;",
        "call (c), vprintf, (a, b);",
        "call vprintf, (a, b);",
    ] {
        if let Err(error) = parse(&format!("{params}{fine} }}")) {
            panic!("{fine}: {error}");
        }
    }
    for wrong in [
        "st.param.b32 [a], %r1;",
        "st.param.b64 [a+4], %d1;",
        "ld.param.u32 %r1, [a+4];",
        "p: .callprototype (.param .b32 _) _ (.param .b64 _);\ncall (c), %r1, (a), p;",
        "call (a), vprintf, (a, b);",
        "call (c), vprintf, (a);",
        "ld.global.b64 %d1, [a];",
    ] {
        assert!(matches!(parse(&format!("{params}{wrong} }}")), Err(PtxError::Syntax { .. })), "{wrong}");
    }
    all_are("griddepcontrol.{wait,launch_dependents}", "");
    for wrong in [
        "mov.u64 %d1, g[%r1];",
        "mov.u32 %r1, g[-1];",
        "ld.shared.u32 %r1, s;",
        "ld.global.u32 %r1, %d1[0];",
        "brx.idx %r1, L;",
        "brx.idx %r1, T;\nT: .branchtargets L;",
        "T: .branchtargets L;\nbrx.idx %d1, T;",
        "T: .branchtargets ;",
    ] {
        assert!(matches!(parse(wrong), Err(PtxError::Syntax { .. })), "{wrong}");
    }
    none_is("brx brx.x brkpt bra.x call.y trap.z griddepcontrol.start setmaxnreg.inc.sync.aligned.u32", "");
    assert!(
        matches!(parse("call f, ();"), Err(PtxError::Unsupported { spelling, .. }) if spelling == "call f")
    );
    assert!(matches!(parse("{ M: } bra M;"), Err(PtxError::Undeclared { name, .. }) if name == "M"));
}

#[test]
fn operands_must_fit() {
    for wrong in [
        "add.s32 %r1, %r2, %d1;",
        "add.s32 %r1, %r2, %h1;",
        "add.s64 %d1, %r2, %d2;",
        "add.f32 %r1, %r2, 1;",
        "add.s32 %r1, %r2, 0d3FF0000000000000;",
        "cvt.u32.u64 %r1, %r2;",
        "cvt.u64.u32 %r1, %r2;",
        "ld.global.u64 %r1, [%d1];",
        "selp.b32 %r1, %r2, %r3, %r4;",
        "mov.u16 %h1, %tid.x;",
        "mov.u64 %d1, %tid.x;",
        "mov.b32 {%r1, %r2}, %r3;",
        "mov.b16 %h1, g;",
        "lop3.b32 %r1, %r2, %r3, %r4, 256;",
        "bar.sync %d1;",
        "add.s32 %tid.x, %r1, %r2;",
    ] {
        assert!(matches!(parse(wrong), Err(PtxError::Syntax { .. })), "{wrong}: {:?}", parse(wrong));
    }
    assert!(matches!(parse("mov.u32 %r1, _;"), Err(PtxError::Undeclared { .. })));
    assert!(matches!(parse("mov.u32 %r1, %nothing;"), Err(PtxError::Undeclared { .. })));
    assert!(matches!(parse("mov.u32 %r1, %tid.w;"), Err(PtxError::Undeclared { .. })));
}

#[test]
fn mbarriers() {
    all_are("mbarrier.init{,.shared,.shared::cta}.b64", "[%d1], %r2");
    all_are(
        "mbarrier.inval{,.shared}.b64 cp.async.mbarrier.arrive{,.noinc}{,.shared,.shared::cta}.b64",
        "[%d1]",
    );
    all_are(
        "mbarrier.{arrive,arrive_drop}{,.release,.release.cta,.relaxed.cluster}{,.shared,.shared::cta}.b64",
        "%d0, [%d1]",
    );
    all_are("mbarrier.arrive{,.noComplete,.expect_tx,.noComplete.release.cta}.shared.b64", "%d0, [%r1], %r2");
    all_are("mbarrier.{arrive,arrive.expect_tx.release.cluster}.shared::cluster.b64", "_, [%r1], 16");
    all_are("mbarrier.{expect_tx,complete_tx}{,.relaxed.cta,.relaxed.cluster}.shared::cta.b64", "[%r1], 16");
    all_are("mbarrier.{test_wait,try_wait}{,.acquire.cta,.relaxed.cluster}{,.shared}.b64", "%p1, [%d1], %d2");
    all_are("mbarrier.{test_wait,try_wait}.parity{,.acquire.cta}{,.shared::cta}.b64", "%p1, [%d1], 1");
    all_are("mbarrier.try_wait.shared.b64", "%p1, [s], %d1, 100");
    all_are("mbarrier.arrive_drop.shared::cta.release.cluster.b64", "%d0, [%d1]");
    all_are("mbarrier.expect_tx.shared::cta.relaxed.cluster.b64", "[%r1], 16");
    all_are("mbarrier.pending_count.b64", "%r1, %d1");
    none_is(
        "mbarrier.b64 mbarrier.wait.b64 mbarrier.init.b32 mbarrier.init.global.b64 mbarrier.test_wait.parity.b32",
        "",
    );
    none_is(
        "mbarrier.arrive.release.cta.shared.release.cta.b64 mbarrier.arrive.acquire.cta.b64 mbarrier.try_wait.release.cta.b64 mbarrier.pending_count.shared.b64",
        "",
    );
    none_is("cp.async.mbarrier.b64 cp.async.mbarrier.arrive.noinc.global.b64", "");
    for wrong in [
        "mbarrier.init.shared.b64 [l], 1;",
        "mbarrier.init.shared.b64 [%r1];",
        "mbarrier.arrive.noComplete.shared.b64 %d0, [%r1];",
        "mbarrier.arrive.shared.b64 [%r1];",
        "mbarrier.arrive.shared.b64 %r0, [%r1];",
        "mbarrier.test_wait.shared.b64 %p1, [%r1];",
        "mbarrier.test_wait.shared.b64 %p1, [%r1], %r1;",
        "mbarrier.test_wait.shared.b64 %p1, [%r1], %d1, 100;",
        "mbarrier.init.b64 [q], 1;",
    ] {
        assert!(matches!(parse(wrong), Err(PtxError::Syntax { .. })), "{wrong}: {:?}", parse(wrong));
    }
}

#[test]
fn a_cluster_has_one_block() {
    let kernel = |directives: &str| {
        let head = ".version 8.4\n.target sm_90\n.address_size 64\n";
        Module::parse(format!("{head}.entry k() {directives} {{ ret; }}\n").into_bytes())?.kernel("k")
    };
    for good in [
        ".explicitcluster .reqnctapercluster 1",
        ".reqnctapercluster 1, 1, 1 .maxclusterrank 8",
        ".maxclusterrank 1",
    ] {
        assert!(kernel(good).is_ok(), "{good}: {:?}", kernel(good));
    }
    for wrong in
        [".reqnctapercluster 2", ".reqnctapercluster 1, 2, 4", ".reqnctapercluster 4294967295, 4294967295"]
    {
        let error = kernel(wrong).unwrap_err().to_string();
        assert!(error.contains("blocks are not supported"), "{error}");
    }
    assert!(matches!(kernel(".reqnctapercluster"), Err(PtxError::Syntax { .. })));
}
