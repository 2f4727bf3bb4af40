//! The analyses are compared with a simulation. Random kernels run once with a value for each lane and
//! register, and once with the storage of an engine that trusts the analyses. Lanes must store the same
//! values to memory.

#![forbid(unsafe_code)]

use proptest::prelude::*;
use vgpu_ptx::analysis::{self, Assume};
use vgpu_ptx::ir::Kernel;
use vgpu_ptx::{Effort, Interrupt, Module};

use crate::model::{self, Lanes, Plain, Shared, Trusting, WarpModel};

/// Compares each way to store registers with the plain one.
fn check(kernel: &Kernel, assume: Assume) -> Result<(), TestCaseError> {
    let analysis =
        analysis::analyse(kernel, assume, &Effort::of_kernel(Interrupt::default())).expect("little effort");
    let slots = analysis::slots(kernel, &analysis);
    let expected = WarpModel::new(kernel, assume, Plain::new(kernel)).execute();
    if !model::lanes_see_each_other(kernel) {
        let alone =
            Lanes::all().map(|lane| WarpModel::new(kernel, assume, Plain::new(kernel)).run_alone(lane));
        prop_assert_eq!(&expected, &alone.collect::<Vec<_>>(), "the order of blocks matters");
    }
    let trusting = Trusting::new(kernel, &analysis);
    prop_assert_eq!(&expected, &WarpModel::new(kernel, assume, trusting).execute(), "uniform or blend");
    let shared = Shared::new(kernel, &analysis, &slots);
    prop_assert_eq!(&expected, &WarpModel::new(kernel, assume, shared).execute(), "slots or waiting");
    for (block, uniform) in analysis.uniform_branch.iter().enumerate() {
        prop_assert!(!uniform || !model::parts(kernel, assume, block), "block {block} parts its lanes");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn storage_by_the_analyses_changes_nothing(kernel in model::kernel(), tid_yz_uniform: bool) {
        check(&kernel, Assume { tid_yz_uniform })?;
    }

    #[test]
    fn live_registers_are_those_that_are_read_later(kernel in model::kernel()) {
        let analysis = analysis::analyse(&kernel, Assume::default(), &Effort::of_kernel(Interrupt::default())).expect("little effort");
        for block in 0..kernel.blocks.len() {
            for reg in 0..kernel.registers.len() {
                let reg = vgpu_ptx::ir::Reg(reg as u32);
                prop_assert_eq!(analysis.live_in[block].contains(reg), model::read_before_written(&kernel, block, reg));
            }
        }
    }
}

/// Returns the names of uniform and of blended registers of a kernel whose registers are all called `%r`.
fn verdicts(body: &str) -> (Vec<u32>, Vec<u32>, Vec<bool>) {
    let text = format!(
        ".version 8.4\n.target sm_61\n.address_size 64\n.entry k(.param .u32 n)\n{{\n.reg .b32 %r<9>;\n.reg .pred %p<9>;\n{body}\n}}\n"
    );
    let kernel = Module::parse(text.into_bytes()).and_then(|module| module.kernel("k")).unwrap();
    check(&kernel, Assume::default()).unwrap();
    let analysis = analysis::analyse(&kernel, Assume::default(), &Effort::of_kernel(Interrupt::default()))
        .expect("little effort");
    let numbers = |set: &analysis::RegSet| set.iter().map(|reg| reg.0).collect();
    (numbers(&analysis.uniform), numbers(&analysis.blend), analysis.uniform_branch)
}

#[test]
fn a_loop_that_all_lanes_leave_together_keeps_its_counter_uniform() {
    // Registers in the order of their first use: n, i, tid, p.
    let (uniform, blend, branches) = verdicts(
        "ld.param.u32 %r0, [n];
         mov.u32 %r1, 0;
         mov.u32 %r2, %tid.x;
         LOOP:
         add.u32 %r2, %r2, %r1;
         add.u32 %r1, %r1, 1;
         setp.lt.u32 %p0, %r1, %r0;
         @%p0 bra LOOP;
         st.global.u32 [0], %r2;
         st.global.u32 [4], %r1;",
    );
    assert_eq!(uniform, [0, 1, 3]);
    assert_eq!(blend, [0; 0]);
    assert_eq!(branches, [true, true, true]);
}

#[test]
fn a_loop_that_lanes_leave_one_by_one_does_not() {
    // i, tid, p; then a copy that nothing outside of the loop reads.
    let (uniform, blend, _) = verdicts(
        "mov.u32 %r1, 0;
         mov.u32 %r2, %tid.x;
         LOOP:
         add.u32 %r1, %r1, 1;
         setp.lt.u32 %p0, %r1, %r2;
         @%p0 bra LOOP;
         st.global.u32 [4], %r1;",
    );
    assert_eq!(uniform, [0; 0]);
    assert_eq!(blend, [0]);
    let (uniform, blend, branches) = verdicts(
        "mov.u32 %r1, 0;
         mov.u32 %r2, %tid.x;
         LOOP:
         add.u32 %r1, %r1, 1;
         setp.lt.u32 %p0, %r1, %r2;
         @%p0 bra LOOP;",
    );
    assert_eq!(uniform, [0], "only lanes that are in the loop read it");
    assert_eq!(blend, [0; 0]);
    assert_eq!(branches, [true, false, true]);
}

#[test]
fn the_sides_of_a_branch_make_a_register_vary_where_they_meet() {
    // Registers in the order of their first use: tid, p, a, b, c.
    let (uniform, blend, _) = verdicts(
        "mov.u32 %r0, %tid.x;
         setp.lt.u32 %p0, %r0, 3;
         @%p0 bra ELSE;
         mov.u32 %r1, 1;
         mov.u32 %r2, 2;
         st.global.u32 [0], %r2;
         bra END;
         ELSE:
         mov.u32 %r1, 3;
         mov.u32 %r3, 4;
         st.global.u32 [0], %r3;
         END:
         st.global.u32 [0], %r1;",
    );
    assert_eq!(uniform, [3, 4], "each is read by the lanes that wrote it");
    // The second side runs while lanes wait at the end. The first runs while lanes wait at the second, which
    // writes the register itself.
    assert_eq!(blend, [2]);
}

#[test]
fn a_branch_in_a_uniform_loop_leaves_the_counter_alone() {
    // Registers in the order of their first use: i, tid, p0, sum, p1.
    let (uniform, blend, branches) = verdicts(
        "mov.u32 %r1, 0;
         mov.u32 %r2, %tid.x;
         mov.u32 %r3, 0;
         LOOP:
         setp.lt.u32 %p0, %r2, %r1;
         @%p0 bra NEXT;
         add.u32 %r3, %r3, %r1;
         NEXT:
         add.u32 %r1, %r1, 1;
         setp.lt.u32 %p1, %r1, 9;
         @%p1 bra LOOP;
         st.global.u32 [0], %r3;",
    );
    assert_eq!(uniform, [0, 4]);
    assert_eq!(blend, [2]);
    assert_eq!(branches, [true, false, true, true, true]);
}
