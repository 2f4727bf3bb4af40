//! The instruction table: one row for each opcode of the engine.
//!
//! A row has the opcode, the PTX instruction that it executes, its operands, its properties, and its
//! interpretation. The table is a macro, because the enumeration of the opcodes lies below the operations and
//! the rows lie above them: `machine::opcode` and `ops::row` each expand it. All other code reads the rows.
//!
//! The rows of a section have the same form:
//! * `lanes` are functions of one to three sources, given by their types in Rust. Each source is a vector of
//!   32 lanes, or a scalar that all lanes share. The result is a scalar if all sources are. Unless a row is
//!   `mixed`, either all sources are scalars or all are vectors.
//! * `doubles` are functions like these whose numbers keep subnormals.
//! * `floats` are arithmetic of 32-bit numbers, which are flushed if the instruction's form tells so, and
//!   whose NaN is made canonical. `flushed` are conversions that flush only their source; `any` tells that
//!   this makes no difference.
//! * `tests` and `float_tests` compare two sources. The result is a predicate.
//! * Sections that start with `@` name each operand of their rows: whether it is read or written, its place
//!   in the instruction, its class, and the type of a lane. The place `ds` is `d`, or the instruction's list
//!   of registers; `bs` likewise; `list` is always that list, of which `first` and `second` are the first two;
//!   `record` stands for the registers in the instruction's record. The class `lanes` is a vector or a
//!   scalar, as the instruction's form tells.
//!
//! Properties: `faults` (it may end the launch with a fault), `leaves` (it may leave the code and be executed
//! again later, because it waits for other lanes or polls the control), `ends` (it is the last instruction of
//! its block) and `plain` (it computes no floating-point numbers, so that it can be interpreted in any
//! denormal mode).

/// Calls a macro with all rows.
macro_rules! instructions {
    ($then:ident) => { $then! {
        lanes {
            Mov32 "mov.b32" (u32 => u32) [] (integer::Mov32);
            Mov64 "mov.b64" (u64 => u64) [] (integer::Mov64);
            Add16 "add.u16" (u32, u32 => u32) [] (integer::Add16);
            Add32 "add.u32" (u32, u32 => u32) [mixed] (integer::Add32);
            Add64 "add.u64" (u64, u64 => u64) [mixed] (integer::Add64);
            AddSat32 "add.sat.s32" (i32, i32 => i32) [] (integer::AddSat32);
            Sub16 "sub.u16" (u32, u32 => u32) [] (integer::Sub16);
            Sub32 "sub.u32" (u32, u32 => u32) [mixed] (integer::Sub32);
            Sub64 "sub.u64" (u64, u64 => u64) [mixed] (integer::Sub64);
            SubSat32 "sub.sat.s32" (i32, i32 => i32) [] (integer::SubSat32);
            MulLo16 "mul.lo.u16" (u32, u32 => u32) [] (integer::MulLo16);
            MulLo32 "mul.lo.u32" (u32, u32 => u32) [mixed] (integer::MulLo32);
            MulLo64 "mul.lo.u64" (u64, u64 => u64) [mixed] (integer::MulLo64);
            MulHiU16 "mul.hi.u16" (u32, u32 => u32) [] (integer::MulHiU16);
            MulHiS16 "mul.hi.s16" (u32, u32 => u32) [] (integer::MulHiS16);
            MulHiU32 "mul.hi.u32" (u32, u32 => u32) [mixed] (integer::MulHiU32);
            MulHiS32 "mul.hi.s32" (i32, i32 => i32) [mixed] (integer::MulHiS32);
            MulHiU64 "mul.hi.u64" (u64, u64 => u64) [] (integer::MulHiU64);
            MulHiS64 "mul.hi.s64" (i64, i64 => i64) [] (integer::MulHiS64);
            MulWideU16 "mul.wide.u16" (u32, u32 => u32) [] (integer::MulWideU16);
            MulWideS16 "mul.wide.s16" (u32, u32 => i32) [] (integer::MulWideS16);
            MulWideU32 "mul.wide.u32" (u32, u32 => u64) [mixed] (integer::MulWideU32);
            MulWideS32 "mul.wide.s32" (i32, i32 => i64) [mixed] (integer::MulWideS32);
            MadLo16 "mad.lo.u16" (u32, u32, u32 => u32) [] (integer::MadLo16);
            MadLo32 "mad.lo.u32" (u32, u32, u32 => u32) [mixed] (integer::MadLo32);
            MadLo64 "mad.lo.u64" (u64, u64, u64 => u64) [] (integer::MadLo64);
            MadWideU16 "mad.wide.u16" (u32, u32, u32 => u32) [] (integer::MadWideU16);
            MadWideS16 "mad.wide.s16" (u32, u32, i32 => i32) [] (integer::MadWideS16);
            MadWideU32 "mad.wide.u32" (u32, u32, u64 => u64) [mixed] (integer::MadWideU32);
            MadWideS32 "mad.wide.s32" (i32, i32, i64 => i64) [mixed] (integer::MadWideS32);
            MadHiU32 "mad.hi.u32" (u32, u32, u32 => u32) [] (integer::MadHiU32);
            MadHiS32 "mad.hi.s32" (i32, i32, i32 => i32) [] (integer::MadHiS32);
            DivU16 "div.u16" (u32, u32 => u32) [] (integer::DivU16);
            DivS16 "div.s16" (u32, u32 => u32) [] (integer::DivS16);
            DivU32 "div.u32" (u32, u32 => u32) [] (integer::DivU32);
            DivS32 "div.s32" (i32, i32 => i32) [] (integer::DivS32);
            DivU64 "div.u64" (u64, u64 => u64) [] (integer::DivU64);
            DivS64 "div.s64" (i64, i64 => i64) [] (integer::DivS64);
            RemS16 "rem.s16" (u32, u32 => u32) [] (integer::RemS16);
            RemU32 "rem.u32" (u32, u32 => u32) [] (integer::RemU32);
            RemS32 "rem.s32" (i32, i32 => i32) [] (integer::RemS32);
            RemU64 "rem.u64" (u64, u64 => u64) [] (integer::RemU64);
            RemS64 "rem.s64" (i64, i64 => i64) [] (integer::RemS64);
            MinS16 "min.s16" (u32, u32 => u32) [] (integer::MinS16);
            MaxS16 "max.s16" (u32, u32 => u32) [] (integer::MaxS16);
            MinU32 "min.u32" (u32, u32 => u32) [mixed] (integer::MinU32);
            MaxU32 "max.u32" (u32, u32 => u32) [mixed] (integer::MaxU32);
            MinS32 "min.s32" (i32, i32 => i32) [mixed] (integer::MinS32);
            MaxS32 "max.s32" (i32, i32 => i32) [mixed] (integer::MaxS32);
            MinU64 "min.u64" (u64, u64 => u64) [] (integer::MinU64);
            MaxU64 "max.u64" (u64, u64 => u64) [] (integer::MaxU64);
            MinS64 "min.s64" (i64, i64 => i64) [] (integer::MinS64);
            MaxS64 "max.s64" (i64, i64 => i64) [] (integer::MaxS64);
            Neg16 "neg.s16" (u32 => u32) [] (integer::Neg16);
            Neg32 "neg.s32" (u32 => u32) [] (integer::Neg32);
            Neg64 "neg.s64" (u64 => u64) [] (integer::Neg64);
            Abs16 "abs.s16" (u32 => u32) [] (integer::Abs16);
            Abs32 "abs.s32" (i32 => i32) [] (integer::Abs32);
            Abs64 "abs.s64" (i64 => i64) [] (integer::Abs64);

            And32 "and.b32" (u32, u32 => u32) [mixed] (bits::And32);
            And64 "and.b64" (u64, u64 => u64) [mixed] (bits::And64);
            Or32 "or.b32" (u32, u32 => u32) [mixed] (bits::Or32);
            Or64 "or.b64" (u64, u64 => u64) [mixed] (bits::Or64);
            Xor32 "xor.b32" (u32, u32 => u32) [mixed] (bits::Xor32);
            Xor64 "xor.b64" (u64, u64 => u64) [mixed] (bits::Xor64);
            Not16 "not.b16" (u32 => u32) [] (bits::Not16);
            Not32 "not.b32" (u32 => u32) [] (bits::Not32);
            Not64 "not.b64" (u64 => u64) [] (bits::Not64);
            Cnot32 "cnot.b32" (u32 => u32) [] (bits::Cnot32);
            Cnot64 "cnot.b64" (u64 => u64) [] (bits::Cnot64);
            Shl16 "shl.b16" (u32, u32 => u32) [] (bits::Shl16);
            Shl32 "shl.b32" (u32, u32 => u32) [mixed] (bits::Shl32);
            Shl64 "shl.b64" (u64, u32 => u64) [mixed] (bits::Shl64);
            ShrS16 "shr.s16" (u32, u32 => u32) [] (bits::ShrS16);
            ShrU32 "shr.u32" (u32, u32 => u32) [mixed] (bits::ShrU32);
            ShrS32 "shr.s32" (i32, u32 => i32) [mixed] (bits::ShrS32);
            ShrU64 "shr.u64" (u64, u32 => u64) [mixed] (bits::ShrU64);
            ShrS64 "shr.s64" (i64, u32 => i64) [mixed] (bits::ShrS64);
            Popc32 "popc.b32" (u32 => u32) [] (bits::Popc32);
            Popc64 "popc.b64" (u64 => u32) [] (bits::Popc64);
            Clz32 "clz.b32" (u32 => u32) [] (bits::Clz32);
            Clz64 "clz.b64" (u64 => u32) [] (bits::Clz64);
            Brev32 "brev.b32" (u32 => u32) [] (bits::Brev32);
            Brev64 "brev.b64" (u64 => u64) [] (bits::Brev64);
            BfeU32 "bfe.u32" (u32, u32, u32 => u32) [mixed] (bits::BfeU32);
            BfeS32 "bfe.s32" (i32, u32, u32 => i32) [] (bits::BfeS32);
            Prmt "prmt.b32" (u32, u32, u32 => u32) [mixed] (bits::Prmt);
            Dp4aS32 "dp4a.s32.s32" (u32, u32, u32 => u32) [] (bits::Dot4<true, true>);
            Dp4aS32U32 "dp4a.s32.u32" (u32, u32, u32 => u32) [] (bits::Dot4<true, false>);
            Dp4aU32S32 "dp4a.u32.s32" (u32, u32, u32 => u32) [] (bits::Dot4<false, true>);
            Dp4aU32 "dp4a.u32.u32" (u32, u32, u32 => u32) [] (bits::Dot4<false, false>);
            ShfLeftWrap "shf.l.wrap.b32" (u32, u32, u32 => u32) [] (bits::Funnel<true, true>);
            ShfLeftClamp "shf.l.clamp.b32" (u32, u32, u32 => u32) [] (bits::Funnel<true, false>);
            ShfRightWrap "shf.r.wrap.b32" (u32, u32, u32 => u32) [] (bits::Funnel<false, true>);
            ShfRightClamp "shf.r.clamp.b32" (u32, u32, u32 => u32) [] (bits::Funnel<false, false>);

            Widen "cvt.u64.u32" (u32 => u64) [] (convert::Widen);
            WidenSigned "cvt.s64.s32" (i32 => i64) [] (convert::WidenSigned);
            Narrow "cvt.u32.u64" (u64 => u32) [] (convert::Narrow);
            NarrowAddress "cvt.u32.u64, above the memory if it does not fit"
                (u64 => u32) [] (convert::NarrowAddress);
            Low8 "cvt.u32.u8" (u32 => u32) [] (convert::Low8);
            Low16 "cvt.u32.u16" (u32 => u32) [] (convert::Low16);
            Sign8 "cvt.s32.s8" (u32 => u32) [] (convert::Sign8);
            Sign16 "cvt.s32.s16" (u32 => u32) [] (convert::Sign16);
            Sign8To16 "cvt.s16.s8" (u32 => u32) [] (convert::Sign8To16);
            Pack16 "mov.b32 d, {a, b}" (u32, u32 => u32) [mixed] (convert::Pack16);
            Pack32 "mov.b64 d, {a, b}" (u32, u32 => u64) [mixed] (convert::Pack32);
            Upper32 "mov.b64 {_, d}, a" (u64 => u32) [] (convert::Upper32);
            FromS32 "cvt.rn.f32.s32" (i32 => f32) [] (convert::FromS32);
            FromU32 "cvt.rn.f32.u32" (u32 => f32) [] (convert::FromU32);
            FromS16 "cvt.rn.f32.s16" (u32 => f32) [] (convert::FromS16);
            FromS8 "cvt.rn.f32.s8" (u32 => f32) [] (convert::FromS8);
            ToS32Zero "cvt.rzi.s32.f32" (f32 => i32) [] (convert::ToS32Zero);
            ToU32Zero "cvt.rzi.u32.f32" (f32 => u32) [] (convert::ToU32Zero);
            DoubleFromS32 "cvt.rn.f64.s32" (i32 => f64) [] (convert::DoubleFromS32);
            DoubleFromU32 "cvt.rn.f64.u32" (u32 => f64) [] (convert::DoubleFromU32);

            FromHalf "cvt.f32.f16" (u32 => f32) [] (half::FromHalf);
            FromUpperHalf "cvt.f32.f16 of the upper half" (u32 => f32) [] (half::FromUpperHalf);
            FromBfloat "cvt.f32.bf16" (u32 => u32) [] (half::FromBfloat);
            ToHalf "cvt.rn.f16.f32" (f32 => u32) [] (half::ToHalf);
            ToHalfFtz "cvt.rn.ftz.f16.f32" (f32 => u32) [] (half::ToHalfFtz);
            ToBfloat "cvt.rn.bf16.f32" (f32 => u32) [] (half::ToBfloat);
            ToTf32 "cvt.rna.tf32.f32" (u32 => u32) [] (half::ToTf32);
            PackHalves "cvt.rn.f16x2.f32" (f32, f32 => u32) [mixed] (half::PackHalves);
            PackBfloats "cvt.rn.bf16x2.f32" (f32, f32 => u32) [mixed] (half::PackBfloats);
            Relu "max.f32 with zero, for .relu" (f32 => f32) [] (half::Relu);
            UpperHalf "mov.b32 {_, d}, a" (u32 => u32) [] (half::Upper);
            NegF16 "neg.f16" (u32 => u32) [] (half::Neg);
            NegF16x2 "neg.f16x2" (u32 => u32) [] (half::Neg2);
            AbsF16 "abs.f16" (u32 => u32) [] (half::Abs);
            AbsF16x2 "abs.f16x2" (u32 => u32) [] (half::Abs2);
            Ex2F16 "ex2.approx.f16" (u32 => u32) [] (half::Halves<float::Ex2, false>);
            Ex2F16x2 "ex2.approx.f16x2" (u32 => u32) [] (half::Halves<float::Ex2, true>);
            TanhF16 "tanh.approx.f16" (u32 => u32) [] (half::Halves<float::Tanh, false>);
            TanhF16x2 "tanh.approx.f16x2" (u32 => u32) [] (half::Halves<float::Tanh, true>);
            AddF16 "add.f16" (u32, u32 => u32) [] (half::Halves<float::Add, false>);
            AddF16x2 "add.f16x2" (u32, u32 => u32) [] (half::Halves<float::Add, true>);
            SubF16 "sub.f16" (u32, u32 => u32) [] (half::Halves<float::Sub, false>);
            SubF16x2 "sub.f16x2" (u32, u32 => u32) [] (half::Halves<float::Sub, true>);
            MulF16 "mul.f16" (u32, u32 => u32) [] (half::Halves<float::Mul, false>);
            MulF16x2 "mul.f16x2" (u32, u32 => u32) [] (half::Halves<float::Mul, true>);
            MinF16 "min.f16" (u32, u32 => u32) [] (half::Halves<float::Min, false>);
            MinF16x2 "min.f16x2" (u32, u32 => u32) [] (half::Halves<float::Min, true>);
            MaxF16 "max.f16" (u32, u32 => u32) [] (half::Halves<float::Max, false>);
            MaxF16x2 "max.f16x2" (u32, u32 => u32) [] (half::Halves<float::Max, true>);
            MinNanF16 "min.NaN.f16" (u32, u32 => u32) [] (half::Halves<float::MinNan, false>);
            MinNanF16x2 "min.NaN.f16x2" (u32, u32 => u32) [] (half::Halves<float::MinNan, true>);
            MaxNanF16 "max.NaN.f16" (u32, u32 => u32) [] (half::Halves<float::MaxNan, false>);
            MaxNanF16x2 "max.NaN.f16x2" (u32, u32 => u32) [] (half::Halves<float::MaxNan, true>);
            FmaF16 "fma.rn.f16" (u32, u32, u32 => u32) [] (half::Halves<half::Fused, false>);
            FmaF16x2 "fma.rn.f16x2" (u32, u32, u32 => u32) [] (half::Halves<half::Fused, true>);

            SaturateF32 ".sat of f32" (f32 => f32) [] (float::Saturate);
            AbsF32 "abs.f32" (f32 => f32) [] (float::Abs);
            AbsFtzF32 "abs.ftz.f32" (f32 => f32) [] (float::AbsFtz);
            NegF32 "neg.f32" (f32 => f32) [] (float::Neg);
            NegFtzF32 "neg.ftz.f32" (f32 => f32) [] (float::NegFtz);
            CopySignF32 "copysign.f32" (u32, u32 => u32) [] (float::CopySign);
            NegF64 "neg.f64" (u64 => u64) [] (double::Neg);
            AbsF64 "abs.f64" (u64 => u64) [] (double::Abs);
            CopySignF64 "copysign.f64" (u64, u64 => u64) [] (double::CopySign);

            SharedToGeneric "cvta.shared.u64" (u64 => u64) [] (special::SharedToGeneric);
            LocalToGeneric "cvta.local.u64" (u64 => u64) [] (special::LocalToGeneric);
            ParamToGeneric "cvta.param.u64" (u64 => u64) [] (special::ParamToGeneric);
            GenericToShared "cvta.to.shared.u64" (u64 => u64) [] (special::GenericToShared);
            GenericToLocal "cvta.to.local.u64" (u64 => u64) [] (special::GenericToLocal);
            GenericToParam "cvta.to.param.u64" (u64 => u64) [] (special::GenericToParam);
        }
        doubles {
            AddF64 "add.f64" (f64, f64 => f64) [] (double::Add);
            SubF64 "sub.f64" (f64, f64 => f64) [] (double::Sub);
            MulF64 "mul.f64" (f64, f64 => f64) [] (double::Mul);
            DivF64 "div.rn.f64" (f64, f64 => f64) [] (double::Div);
            FmaF64 "fma.rn.f64" (f64, f64, f64 => f64) [] (double::Fma);
            MinF64 "min.f64" (f64, f64 => f64) [] (double::Min);
            MaxF64 "max.f64" (f64, f64 => f64) [] (double::Max);
            RcpF64 "rcp.rn.f64" (f64 => f64) [] (double::Rcp);
            SqrtF64 "sqrt.rn.f64" (f64 => f64) [] (double::Sqrt);
            RcpApproxF64 "rcp.approx.ftz.f64" (f64 => f64) [] (double::RcpApprox);
            RsqrtF64 "rsqrt.approx.f64" (f64 => f64) [] (double::Rsqrt);
            RsqrtFtzF64 "rsqrt.approx.ftz.f64" (f64 => f64) [] (double::RsqrtFtz);
        }
        floats {
            AddF32 "add{.ftz}.f32" (f32, f32 => f32) [normal] (float::Add);
            AddZeroF32 "add.rz{.ftz}.f32" (f32, f32 => f32) [] (float::AddZero);
            SubF32 "sub{.ftz}.f32" (f32, f32 => f32) [normal] (float::Sub);
            MulF32 "mul{.ftz}.f32" (f32, f32 => f32) [normal] (float::Mul);
            FmaF32 "fma.rn{.ftz}.f32" (f32, f32, f32 => f32) [normal] (float::Fma);
            DivF32 "div.rn{.ftz}.f32" (f32, f32 => f32) [] (float::Div);
            DivApproxF32 "div.approx{.ftz}.f32" (f32, f32 => f32) [] (float::DivApprox);
            MinF32 "min{.ftz}.f32" (f32, f32 => f32) [normal] (float::Min);
            MaxF32 "max{.ftz}.f32" (f32, f32 => f32) [normal] (float::Max);
            MinNanF32 "min{.ftz}.NaN.f32" (f32, f32 => f32) [] (float::MinNan);
            MaxNanF32 "max{.ftz}.NaN.f32" (f32, f32 => f32) [] (float::MaxNan);
            RcpF32 "rcp.rn{.ftz}.f32" (f32 => f32) [] (float::Rcp);
            SqrtF32 "sqrt.rn{.ftz}.f32" (f32 => f32) [] (float::Sqrt);
            RsqrtF32 "rsqrt.approx{.ftz}.f32" (f32 => f32) [] (float::Rsqrt);
            SinF32 "sin.approx{.ftz}.f32" (f32 => f32) [] (float::Sin);
            CosF32 "cos.approx{.ftz}.f32" (f32 => f32) [] (float::Cos);
            Lg2F32 "lg2.approx{.ftz}.f32" (f32 => f32) [] (float::Lg2);
            Ex2F32 "ex2.approx{.ftz}.f32" (f32 => f32) [] (float::Ex2);
            TanhF32 "tanh.approx{.ftz}.f32" (f32 => f32) [] (float::Tanh);
        }
        flushed {
            ToF64 "cvt{.ftz}.f64.f32" (f32 => f64) [] (convert::ToDouble);
            ToS32Nearest "cvt.rni{.ftz}.s32.f32" (f32 => i32) [] (convert::ToS32Nearest);
            ToS32Down "cvt.rmi{.ftz}.s32.f32" (f32 => i32) [] (convert::ToS32Down);
            ToS32Up "cvt.rpi{.ftz}.s32.f32" (f32 => i32) [] (convert::ToS32Up);
            NearestF32 "cvt.rni{.ftz}.f32.f32" (f32 => f32) [] (convert::Nearest);
            ZeroF32 "cvt.rzi{.ftz}.f32.f32" (f32 => f32) [any] (convert::Zero);
            DownF32 "cvt.rmi{.ftz}.f32.f32" (f32 => f32) [] (convert::Down);
            UpF32 "cvt.rpi{.ftz}.f32.f32" (f32 => f32) [] (convert::Up);
        }
        tests {
            Eq32 "setp.eq.b32" (u32) [] (compare::Eq32);
            LtU32 "setp.lt.u32" (u32) [] (compare::LtU32);
            LeU32 "setp.le.u32" (u32) [] (compare::LeU32);
            LtS32 "setp.lt.s32" (i32) [] (compare::LtS32);
            LeS32 "setp.le.s32" (i32) [] (compare::LeS32);
            Eq64 "setp.eq.b64" (u64) [] (compare::Eq64);
            LtU64 "setp.lt.u64" (u64) [] (compare::LtU64);
            LeU64 "setp.le.u64" (u64) [] (compare::LeU64);
            LtS64 "setp.lt.s64" (i64) [] (compare::LtS64);
            LeS64 "setp.le.s64" (i64) [] (compare::LeS64);
            LtS16 "setp.lt.s16" (u32) [] (compare::LtS16);
            LeS16 "setp.le.s16" (u32) [] (compare::LeS16);
            EqF64 "setp.eq.f64" (f64) [keep] (compare::EqF64);
            LtF64 "setp.lt.f64" (f64) [keep] (compare::LtF64);
            LeF64 "setp.le.f64" (f64) [keep] (compare::LeF64);
            EquF64 "setp.equ.f64" (f64) [keep] (compare::EquF64);
            NanF64 "setp.nan.f64" (f64) [] (compare::NanF64);
        }
        float_tests {
            EqF32 "setp.eq{.ftz}.f32" (f32) [] (compare::EqF32);
            LtF32 "setp.lt{.ftz}.f32" (f32) [] (compare::LtF32);
            LeF32 "setp.le{.ftz}.f32" (f32) [] (compare::LeF32);
            EquF32 "setp.equ{.ftz}.f32" (f32) [] (compare::EquF32);
            NanF32 "setp.nan{.ftz}.f32" (f32) [any] (compare::NanF32);
        }
        @ (write d vector u32, read a scalar u32) [] { Splat32 "mov.b32 to all lanes" (isa::<Splat<u32>>); }
        @ (write d vector u64, read a scalar u64) [] { Splat64 "mov.b64 to all lanes" (isa::<Splat<u64>>); }
        @ (write d scalar u32, read a vector u32) [] {
            Elect32 "mov.b32 from the lowest active lane" (base::<warps::Elect<u32>>);
        }
        @ (write d scalar u64, read a vector u64) [] {
            Elect64 "mov.b64 from the lowest active lane" (base::<warps::Elect<u64>>);
        }
        @ (write d lanes u32, read a lanes u32, read b lanes u32, read c predicate u32) [] {
            Selp32 "selp.b32" (select::<u32>);
        }
        @ (write d lanes u64, read a lanes u64, read b lanes u64, read c predicate u32) [] {
            Selp64 "selp.b64" (select::<u64>);
        }
        @ (write d predicate u32, read a predicate u32, read b predicate u32) [] {
            AndPred "and.pred" (logic::<{ compare::AND }>);
            OrPred "or.pred" (logic::<{ compare::OR }>);
            XorPred "xor.pred" (logic::<{ compare::XOR }>);
        }
        @ (write d vector u32, read a vector u32) [] {
            FromLowerHalves "cvt.f32.f16 of lanes" (isa::<half::FromHalves<false>>);
            FromUpperHalves "cvt.f32.f16 of lanes, of the upper halves" (isa::<half::FromHalves<true>>);
        }
        @ (write d vector u32, read a vector u32, read b vector u32, read c vector u32) [] {
            Dp4aLanes "dp4a.s32.s32 of lanes" (isa::<bits::SignedDot4>);
        }
        @ (write d vector u32, record) [] {
            Fields "and, shl, shr and or of bit fields" (isa::<bits::Fields>);
        }
        @ (record) [] { Rare "any other function of lanes" (base::<Rare>); }
        @ (write ds lanes u32, read a lanes u64) [faults] {
            LdGlobalU8 "ld.global{.v2,.v4}.u8" (load_either::<Global, FromU8>);
            LdGlobalU16 "ld.global{.v2,.v4}.u16" (load_either::<Global, FromU16>);
            LdGlobal32 "ld.global{.v2,.v4}.b32" (load_either::<Global, Same32>);
        }
        @ (write ds lanes u64, read a lanes u64) [faults] {
            LdGlobal64 "ld.global{.v2,.v4}.b64" (load_either::<Global, Same64>);
        }
        @ (write ds lanes u32, read a lanes u32) [faults] {
            LdSharedU8 "ld.shared{.v2,.v4}.u8" (load_either::<Shared, FromU8>);
            LdSharedU16 "ld.shared{.v2,.v4}.u16" (load_either::<Shared, FromU16>);
            LdShared32 "ld.shared{.v2,.v4}.b32" (load_either::<Shared, Same32>);
        }
        @ (write ds lanes u64, read a lanes u32) [faults] {
            LdShared64 "ld.shared{.v2,.v4}.b64" (load_either::<Shared, Same64>);
        }
        @ (write ds vector u32, read a lanes u32) [faults] {
            LdLocalU8 "ld.local{.v2,.v4}.u8" (load_local::<FromU8>);
            LdLocalU16 "ld.local{.v2,.v4}.u16" (load_local::<FromU16>);
            LdLocal32 "ld.local{.v2,.v4}.b32" (load_local::<Same32>);
        }
        @ (write ds vector u64, read a lanes u32) [faults] {
            LdLocal64 "ld.local{.v2,.v4}.b64" (load_local::<Same64>);
        }
        @ (write ds vector u32, read a vector u64) [faults] {
            LdGenericU8 "ld{.v2,.v4}.u8" (load_generic::<FromU8>);
            LdGenericU16 "ld{.v2,.v4}.u16" (load_generic::<FromU16>);
            LdGeneric32 "ld{.v2,.v4}.b32" (load_generic::<Same32>);
        }
        @ (write ds vector u64, read a vector u64) [faults] {
            LdGeneric64 "ld{.v2,.v4}.b64" (load_generic::<Same64>);
        }
        @ (write d vector u32, read a vector u64) [faults] {
            LdPair "ld.global.u16 of two neighbours, packed" (isa::<LoadPair>);
        }
        @ (write d vector u32, write c vector u32, read a vector u64) [faults] {
            LdTwo "ld.global.b32 of two neighbours" (isa::<LoadTwo<false>>);
            LdTwoPairs "ld.global.u16 of four neighbours, packed" (isa::<LoadTwo<true>>);
        }
        @ (read bs vector u32, read a vector u64) [faults] {
            StGlobal8 "st.global{.v2,.v4}.b8" (store::<Global, u8>);
            StGlobal16 "st.global{.v2,.v4}.b16" (store::<Global, u16>);
            StGlobal32 "st.global{.v2,.v4}.b32" (store::<Global, u32>);
        }
        @ (read bs vector u64, read a vector u64) [faults] {
            StGlobal64 "st.global{.v2,.v4}.b64" (store::<Global, u64>);
        }
        @ (read bs vector u32, read a vector u32) [faults] {
            StShared8 "st.shared{.v2,.v4}.b8" (store::<Shared, u8>);
            StShared16 "st.shared{.v2,.v4}.b16" (store::<Shared, u16>);
            StShared32 "st.shared{.v2,.v4}.b32" (store_words);
        }
        @ (read bs vector u64, read a vector u32) [faults] {
            StShared64 "st.shared{.v2,.v4}.b64" (store::<Shared, u64>);
        }
        @ (read bs vector u32, read a lanes u32) [faults] {
            StLocal8 "st.local{.v2,.v4}.b8" (store_local::<u8>);
            StLocal16 "st.local{.v2,.v4}.b16" (store_local::<u16>);
            StLocal32 "st.local{.v2,.v4}.b32" (store_local::<u32>);
        }
        @ (read bs vector u64, read a lanes u32) [faults] {
            StLocal64 "st.local{.v2,.v4}.b64" (store_local::<u64>);
        }
        @ (read bs vector u32, read a vector u64) [faults] {
            StGeneric8 "st{.v2,.v4}.b8" (store::<Generic, u8>);
            StGeneric16 "st{.v2,.v4}.b16" (store::<Generic, u16>);
            StGeneric32 "st{.v2,.v4}.b32" (store::<Generic, u32>);
        }
        @ (read bs vector u64, read a vector u64) [faults] {
            StGeneric64 "st{.v2,.v4}.b64" (store::<Generic, u64>);
        }
        @ (read d scalar u32, read a vector u64, read b vector u32, read c vector u32) [faults] {
            CpAsync "cp.async with a size" (base::<CopyAsync>);
        }
        @ (record) [faults] { Atomic "atom, red" (base::<Atomic>); }
        @ () [] { Fence "membar, fence" (base::<special::Fence>); }
        @ (write d vector u32, write second predicate u32, read a vector u32, read b lanes u32,
            read c lanes u32, read first scalar u32) [leaves] {
            ShflUp "shfl.up" (shuffle::<{ warps::UP }>);
            ShflDown "shfl.down" (shuffle::<{ warps::DOWN }>);
            ShflBfly "shfl.bfly" (shuffle::<{ warps::BFLY }>);
            ShflIdx "shfl.idx" (shuffle::<{ warps::IDX }>);
        }
        @ (write d vector u32, read a vector u32, read b scalar u32) [leaves] {
            Butterfly "shfl.bfly by a power of two" (butterfly);
        }
        @ (write d vector f32, read a vector f32, read c vector f32, read b scalar u32) [leaves arithmetic] {
            ButterflyAdd "shfl.bfly by a power of two, and add{.ftz}.f32"
                (butterfly_then::<float::Add, true>);
            ButterflyMax "shfl.bfly by a power of two, and max{.ftz}.f32"
                (butterfly_then::<float::Max, false>);
        }
        @ (write d scalar u32, read a vector u32) [plain] {
            Group "the lanes with the member mask of the lowest one" (base::<warps::Group<false>>);
            GroupIfApart "the same, or all lanes if none waits for others" (base::<warps::Group<true>>);
        }
        @ (read a scalar u32) [leaves] { SyncWarp "bar.warp.sync" (base::<warps::SyncWarp>); }
        @ (write d predicate u32, read a predicate u32, read b scalar u32) [leaves] {
            VoteAll "vote.sync.all" (vote::<{ warps::ALL }>);
            VoteAny "vote.sync.any" (vote::<{ warps::ANY }>);
            VoteUni "vote.sync.uni" (vote::<{ warps::UNI }>);
        }
        @ (write d scalar u32, read a predicate u32, read b scalar u32) [leaves] {
            Ballot "vote.sync.ballot" (base::<warps::Ballot>);
        }
        @ (write d scalar u32) [] { ActiveMask "activemask" (base::<warps::ActiveMask>); }
        @ (write d vector u32, read a vector u32, read b scalar u32) [leaves] {
            MatchAny32 "match.any.b32" (base::<warps::Match<false, false>>);
        }
        @ (write d vector u32, read a vector u64, read b scalar u32) [leaves] {
            MatchAny64 "match.any.b64" (base::<warps::Match<false, true>>);
        }
        @ (write d scalar u32, write c predicate u32, read a vector u32, read b scalar u32) [leaves] {
            MatchAll32 "match.all.b32" (base::<warps::Match<true, false>>);
        }
        @ (write d scalar u32, write c predicate u32, read a vector u64, read b scalar u32) [leaves] {
            MatchAll64 "match.all.b64" (base::<warps::Match<true, true>>);
        }
        @ (write d scalar u32, read a vector u32, read b scalar u32) [leaves] {
            ReduxAnd "redux.sync.and.b32" (base::<warps::Redux<0>>);
            ReduxOr "redux.sync.or.b32" (base::<warps::Redux<1>>);
            ReduxXor "redux.sync.xor.b32" (base::<warps::Redux<2>>);
            ReduxAdd "redux.sync.add.u32" (base::<warps::Redux<3>>);
            ReduxMinU32 "redux.sync.min.u32" (base::<warps::Redux<4>>);
            ReduxMaxU32 "redux.sync.max.u32" (base::<warps::Redux<5>>);
            ReduxMinS32 "redux.sync.min.s32" (base::<warps::Redux<6>>);
            ReduxMaxS32 "redux.sync.max.s32" (base::<warps::Redux<7>>);
        }
        @ (record) [leaves] {
            MmaF16 "mma.sync of f16" (isa::<Multiply<Halves, Halves>>);
            MmaBf16 "mma.sync of bf16" (isa::<Multiply<Brains, Brains>>);
            MmaTf32 "mma.sync of tf32" (isa::<Multiply<Singles, Singles>>);
            MmaF64 "mma.sync of f64" (base::<Multiply<Doubles, Doubles>>);
            MmaS8 "mma.sync of s8 and s8" (isa::<Multiply<Bytes<true>, Bytes<true>>>);
            MmaS8U8 "mma.sync of s8 and u8" (base::<Multiply<Bytes<true>, Bytes<false>>>);
            MmaU8S8 "mma.sync of u8 and s8" (base::<Multiply<Bytes<false>, Bytes<true>>>);
            MmaU8 "mma.sync of u8 and u8" (base::<Multiply<Bytes<false>, Bytes<false>>>);
            MmaQuads "mma.sync.m8n8k4 of f16" (isa::<MultiplyQuads>);
        }
        @ (write list vector u32, read a vector u32, read b scalar u32) [faults leaves] {
            LdMatrix "ldmatrix.shared" (load_matrices::<false, false>);
            LdMatrixTrans "ldmatrix.trans.shared" (load_matrices::<false, true>);
        }
        @ (write list vector u32, read a vector u64, read b scalar u32) [faults leaves] {
            LdMatrixGeneric "ldmatrix" (load_matrices::<true, false>);
            LdMatrixGenericTrans "ldmatrix.trans" (load_matrices::<true, true>);
        }
        @ (read list vector u32, read a vector u32, read b scalar u32) [faults leaves] {
            StMatrix "stmatrix.shared" (store_matrices::<false, false>);
            StMatrixTrans "stmatrix.trans.shared" (store_matrices::<false, true>);
        }
        @ (read list vector u32, read a vector u64, read b scalar u32) [faults leaves] {
            StMatrixGeneric "stmatrix" (store_matrices::<true, false>);
            StMatrixGenericTrans "stmatrix.trans" (store_matrices::<true, true>);
        }
        @ (write d vector u32, read a vector u32, read b scalar u32) [leaves] {
            MovMatrix "movmatrix.trans" (base::<Transpose>);
        }
        @ (write d scalar u64) [] {
            Clock "mov from %clock64" (base::<special::Clock>);
            GlobalTimer "mov from %globaltimer" (base::<special::GlobalTimer>);
        }
        @ () [leaves] { Yield "nanosleep" (base::<special::Yield>); }
        @ (record) [faults] { Print "call of vprintf" (base::<Print>); }
        @ (write d vector u64, read a vector u64) [leaves] { Malloc "call of malloc" (base::<Malloc>); }
        @ (read a vector u64) [faults] { Free "call of free" (base::<Free>); }
        @ (read a vector u64, read b vector u64, read c vector u32, read d vector u64) [faults] {
            Assert "call of __assertfail" (base::<Assert>);
        }
        @ () [leaves plain] {
            Poll "poll of the launch's control" (base::<control::Poll>);
            Turn "end of an iteration that may wait for other lanes" (base::<control::Turn>);
            Leave "end of the prologue" (base::<control::Leave>);
        }
        @ () [ends] { Goto "bra to a later block" (base::<control::Goto<false>>); }
        @ () [leaves ends] { GotoBack "bra to an earlier block" (base::<control::Goto<true>>); }
        @ (read a predicate u32) [ends] { Branch "@p bra to later blocks" (base::<control::Branch<false>>); }
        @ (read a predicate u32) [leaves ends] {
            BranchBack "@p bra, to an earlier block too" (base::<control::Branch<true>>);
        }
        @ () [ends plain] { Return "ret, exit" (base::<control::Return>); }
        @ () [faults ends] {
            Trap "trap" (base::<control::Trap>);
            StackOverflow "call without room on the stack" (base::<control::StackOverflow>);
            BadCall "call of an address without a function" (base::<control::BadCall>);
        }
        @ () [leaves ends plain] { Arrive "bar.sync, bar.arrive, bar.red" (base::<control::Arrive>); }
    } };
}
pub(crate) use instructions;
