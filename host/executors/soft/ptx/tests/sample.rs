//! Tests of a module that contains every kind of declaration.

#![forbid(unsafe_code)]

use vgpu_ptx::ir::{Base, Class, Op, Operand, Param, Reg, Space, Terminator, Ty};
use vgpu_ptx::{Linkage, Module, PtxError, Relocation};

fn sample() -> Module {
    Module::parse(include_bytes!("sample.ptx").to_vec()).unwrap()
}

#[test]
fn globals() {
    let module = sample();
    assert_eq!((module.version(), module.target()), ((8, 4), 70));
    assert_eq!(module.kernel_names().collect::<Vec<_>>(), ["first", "second"]);
    let [table, pointers, scale, later, text] = module.globals() else { panic!("{:?}", module.globals()) };
    assert_eq!((table.bytes, table.align, &table.data[..]), (8, 1, &[1, 2, 4, 8, 16, 32, 64, 128][..]));
    assert_eq!((pointers.bytes, &pointers.data[..]), (24, &[0; 24][..]));
    assert_eq!(
        pointers.relocations,
        [
            Relocation { offset: 0, global: 0, addend: 2, generic: true },
            Relocation { offset: 16, global: 3, addend: 0, generic: false },
        ]
    );
    assert_eq!((scale.bytes, scale.constant, scale.linkage), (16, true, Linkage::Visible));
    let floats: Vec<f32> =
        scale.data.chunks(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect();
    assert_eq!(floats, [1.5, -0.25, 1.0, 2.0]);
    assert_eq!((later.bytes, later.align, later.data.len()), (12, 4, 0));
    assert_eq!((text.name.as_str(), text.bytes, text.data.len()), ("$str", 4, 3));
}

#[test]
fn layout() {
    let kernel = sample().kernel("first").unwrap();
    let param = |offset, bytes| Param { offset, bytes };
    assert_eq!(kernel.params, [param(0, 8), param(8, 24), param(32, 4), param(36, 1)]);
    assert_eq!(kernel.param_bytes, 37);
    assert_eq!((kernel.max_threads, kernel.required_threads), (256, None));
    // The kernel has 64 bytes of its own and uses 24 of the module. Dynamic memory starts at a multiple of
    // 32.
    assert_eq!((kernel.shared_bytes, kernel.dynamic_shared_offset), (88, 96));
    assert_eq!(kernel.local_bytes, 8);
    let second = sample().kernel("second").unwrap();
    assert_eq!((second.shared_bytes, second.dynamic_shared_offset), (0, 0));
    assert_eq!(second.required_threads, Some([32, 1, 1]));
    let many =
        include_str!("sample.ptx").replace(".reqntid 32", ".maxntid 4294967295, 4294967295, 4294967295");
    let many = Module::parse(many.into_bytes()).and_then(|module| module.kernel("second")).unwrap();
    assert_eq!(many.max_threads, u32::MAX);
}

#[test]
fn addresses() {
    let kernel = sample().kernel("first").unwrap();
    let mems: Vec<_> = kernel
        .code
        .iter()
        .filter_map(|inst| match &inst.op {
            Op::Ld { mem, .. } | Op::St { mem, .. } | Op::Atom { mem, .. } => {
                Some((mem.space, mem.base, mem.offset))
            }
            _ => None,
        })
        .filter(|(_, base, _)| !matches!(base, Base::Reg(_)))
        .collect();
    assert_eq!(
        mems,
        [
            (Space::Param, Base::Zero, 0),
            (Space::Param, Base::Zero, 16),
            (Space::Param, Base::Zero, 32),
            (Space::Param, Base::Zero, 36),
            (Space::Shared, Base::Zero, 4),
            (Space::Shared, Base::DynamicShared, 12),
            (Space::Shared, Base::Zero, 72),
            (Space::Global, Base::Global(0), 3),
        ]
    );
    assert_eq!(kernel.code[0].op, Op::Mov { ty: Ty::U64, dst: Reg(1), src: Operand::Address(Base::Zero, 0) });
}

#[test]
fn guarded_instructions_are_blocks() {
    let kernel = sample().kernel("first").unwrap();
    // The blocks are: the entry, up to `@p add`, the add, up to the backward branch, the next branch, the
    // call, the end.
    let ends: Vec<_> = kernel.blocks.iter().map(|block| &block.end).collect();
    let targets: Vec<Vec<u32>> = ends
        .iter()
        .map(|end| match end {
            Terminator::Goto(to) => vec![to.0],
            Terminator::Branch { then, otherwise, .. } => vec![then.0, otherwise.0],
            _ => vec![],
        })
        .collect();
    assert_eq!(targets, [vec![1], vec![2, 3], vec![3], vec![1, 4], vec![6, 5], vec![], vec![]]);
    assert_eq!((ends[5], ends[6]), (&Terminator::Trap, &Terminator::Return));
    assert!(matches!(ends[3], Terminator::Branch { guard, uniform: false, .. } if guard.negated));
    assert!(matches!(ends[4], Terminator::Branch { guard, uniform: true, .. } if !guard.negated));
    let alone = &kernel.code[kernel.blocks[2].code.start as usize..kernel.blocks[2].code.end as usize];
    assert!(matches!(alone, [inst] if matches!(inst.op, Op::Binary { ty: Ty::U32, .. })));
}

#[test]
fn vprintf_takes_registers() {
    let kernel = sample().kernel("first").unwrap();
    let position = kernel.code.iter().position(|inst| matches!(inst.op, Op::Printf { .. })).unwrap();
    let [format, arguments, call, result] = &kernel.code[position - 2..position + 2] else { panic!() };
    let (Op::Mov { dst: a, .. }, Op::Mov { dst: b, .. }) = (&format.op, &arguments.op) else { panic!() };
    let Op::Printf { dst: Some(dst), format, arguments } = call.op else { panic!() };
    assert_eq!((format, arguments), (Operand::Reg(*a), Operand::Reg(*b)));
    assert!(matches!(result.op, Op::Mov { ty: Ty::B32, src: Operand::Reg(src), .. } if src == dst));
    assert_eq!(kernel.registers[dst.0 as usize], Class::B32);
}

#[test]
fn lines_are_those_of_the_text() {
    let kernel = sample().kernel("second").unwrap();
    let text = include_str!("sample.ptx");
    let line = |needle: &str| text.lines().position(|line| line == needle).unwrap() as u32 + 1;
    let lines: Vec<u32> = kernel.code.iter().map(|inst| inst.line).collect();
    assert_eq!(lines, [line("setp.ne.u32 P, %r0, %r1;"), line("bar.warp.sync -1;")]);
}

#[test]
fn errors_name_line_and_text() {
    let module = |old: &str, new: &str| {
        let text = include_str!("sample.ptx");
        assert!(text.contains(old), "{old}");
        Module::parse(text.replacen(old, new, 1).into_bytes())
    };
    let message = |old: &str, new: &str| {
        let error = module(old, new).and_then(|module| module.kernel("second")).unwrap_err();
        error.to_string().split_once(": ").map(|(_, rest)| rest.to_owned()).unwrap()
    };
    assert_eq!(
        message("bar.warp.sync -1;", "cp.async.bulk.wait_group 0;"),
        "`cp.async.bulk.wait_group 0;`: there is no instruction cp.async.bulk.wait_group"
    );
    assert_eq!(message("@P bra WAIT;", "@P bra STAY;"), "`@P bra STAY;`: STAY is not declared");
    assert_eq!(message("P, %r0, %r1;", "P, %r0, %r2;"), "`setp.ne.u32 P, %r0, %r2;`: %r2 is not declared");
    assert_eq!(
        message("P, %r0, %r1;", "P, %r0, P;"),
        "`setp.ne.u32 P, %r0, P;`: expected a register of 32 bits, found `P`"
    );
    assert_eq!(
        message("P, %r0, %r1;", "P, %r0 %r1;"),
        "`setp.ne.u32 P, %r0 %r1;`: expected `,`, found `%r1`"
    );
    assert_eq!(message("WAIT:\n", "WAIT:\nWAIT:\n"), "`WAIT:`: there are two labels WAIT");
    assert_eq!(
        message(".reg .pred P;", ".reg .pred P<2000000>;"),
        "`.reg .pred P<2000000>;`: too large for this device: more than 1048576 registers"
    );
    assert_eq!(
        message(".address_size 64", ".address_size 32"),
        "`.address_size 32`: addresses of 32 bits are not supported"
    );
    assert_eq!(message("later};", "latest};").split_once("`: ").unwrap().1, "latest is not declared");
    assert_eq!(sample().kernel("third"), Err(PtxError::NoKernel("third".to_owned())));
}
