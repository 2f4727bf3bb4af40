//! Tests of the linker: shared names have one meaning, and internal names stay separate.

use proptest::prelude::*;
use vgpu_ptx::{Effort, Input, Interrupt, LinkError, Linkage, Module, PtxError, link};

const HEAD: &str = ".version 7.0\n.target sm_50\n.address_size 64\n";

fn linked(texts: &[&str]) -> Result<Module, LinkError> {
    let texts: Vec<String> = texts.iter().map(|text| format!("{HEAD}{text}")).collect();
    let names = ["first", "second", "third"];
    let inputs: Vec<Input<'_>> =
        names.iter().zip(&texts).map(|(name, text)| Input { name, text: text.as_bytes() }).collect();
    let text = link(&inputs, &Effort::unlimited(Interrupt::default()))?;
    Ok(Module::parse(text).expect("what is linked is a module"))
}

/// Returns a kernel that uses a variable by its address.
fn uses(kernel: &str, variable: &str) -> String {
    format!(".visible .entry {kernel}()\n{{\n.reg .b64 %rd1;\nmov.u64 %rd1, {variable};\nret;\n}}\n")
}

#[test]
fn what_one_module_lacks_another_has() {
    let user = format!(".extern .global .align 4 .u32 number;\n{}", uses("k", "number"));
    let owner = ".visible .global .align 4 .u32 number = 7;\n";
    for texts in [[&*user, owner], [owner, &*user]] {
        let module = linked(&texts).unwrap();
        let [number] = module.globals() else { panic!("{:?}", module.globals()) };
        assert_eq!((number.linkage, &number.data[..]), (Linkage::Visible, &7u32.to_le_bytes()[..]));
        module.kernel("k").unwrap();
    }
    let undefined = |input: &str| LinkError::Undefined { name: "number".into(), input: input.into() };
    assert_eq!(linked(&[&user]).unwrap_err(), undefined("first"));
    assert_eq!(linked(&["", &user]).unwrap_err(), undefined("second"));
    // An internal variable of the same name in another module does not count.
    assert_eq!(linked(&[&user, ".global .u32 number;"]).unwrap_err(), undefined("first"));
    // A name that no module uses need not be defined.
    assert!(linked(&[".extern .global .u32 number;"]).unwrap().globals().is_empty());
}

#[test]
fn names_of_their_own_stay_apart() {
    let module = |kernel: &str, value: u32| {
        format!(".global .align 4 .u32 mine = {value};\n.global .u64 place = mine;\n{}", uses(kernel, "mine"))
    };
    let linked = linked(&[&module("a", 1), &module("b", 2)]).unwrap();
    let names: Vec<&str> = linked.globals().iter().map(|global| &*global.name).collect();
    assert_eq!(names, ["mine__1_0", "place__1_0", "mine__2_0", "place__2_0"]);
    let relocations: Vec<u32> =
        linked.globals().iter().flat_map(|global| &global.relocations).map(|found| found.global).collect();
    assert_eq!(relocations, [0, 2]);
    for kernel in ["a", "b"] {
        linked.kernel(kernel).unwrap();
    }
}

#[test]
fn one_definition_stays() {
    let twice =
        |name: &str| LinkError::Twice { name: name.into(), first: "first".into(), second: "second".into() };
    let strong = ".visible .global .u32 x = 1;";
    let weak = |value: u32| format!(".weak .global .u32 x = {value};");
    assert_eq!(linked(&[strong, strong]).unwrap_err(), twice("x"));
    let value = |texts: &[&str]| {
        let module = linked(texts).unwrap();
        let [x] = module.globals() else { panic!("{:?}", module.globals()) };
        x.data[0]
    };
    assert_eq!(value(&[&weak(2), &weak(3)]), 2);
    assert_eq!(value(&[&weak(2), strong]), 1);
    assert_eq!(value(&[strong, &weak(2)]), 1);
    let kernel = ".entry k()\n{\nret;\n}\n";
    assert_eq!(linked(&[kernel, kernel]).unwrap_err(), twice("k"));
    // All modules share dynamic shared memory and the device's own functions.
    let printf = ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n.extern .shared .align 16 .b8 all[];\n";
    let both = linked(&[&format!("{printf}{}", uses("a", "all")), &format!("{printf}{}", uses("b", "all"))])
        .unwrap();
    assert_eq!(both.kernel_names().collect::<Vec<_>>(), ["a", "b"]);
    both.kernel("b").unwrap();
}

#[test]
fn functions_are_found_across_modules() {
    let caller = ".extern .func (.param .b32 r) f(.param .b32 x);\n.visible .entry k()\n{\n.reg .b32 %r<3>;\nmov.u32 %r1, 1;\n{\n.param .b32 a;\nst.param.b32 [a+0], %r1;\n.param .b32 b;\ncall.uni (b), f, (a);\nld.param.b32 %r2, [b+0];\n}\nret;\n}\n";
    let callee = |name: &str, code: &str| {
        format!(
            ".visible .func (.param .b32 r) {name}(.param .b32 x)\n{{\n.reg .b32 %r<3>;\nld.param.u32 %r1, [x];\n{code}st.param.b32 [r+0], %r1;\nret;\n}}\n"
        )
    };
    let module = linked(&[caller, &callee("f", "add.s32 %r1, %r1, %r1;\n")]).unwrap();
    let own = module.kernel("k").unwrap();
    assert!(own.code.len() > 3, "{:?}", own.code);
    assert_eq!(
        linked(&[caller]).unwrap_err(),
        LinkError::Undefined { name: "f".into(), input: "first".into() }
    );
    // A function that calls itself, even through another function, has a separate body.
    let around = "{\n.param .b32 a;\nst.param.b32 [a+0], %r1;\n.param .b32 b;\ncall.uni (b), NAME, (a);\nld.param.b32 %r1, [b+0];\n}\n";
    let one = callee("f", &around.replace("NAME", "f"));
    let two = callee("f", &around.replace("NAME", "g")) + &callee("g", &around.replace("NAME", "f"));
    for text in [one, two] {
        let kernel = linked(&[caller, &text]).unwrap().kernel("k").unwrap();
        assert!(kernel.calls, "{kernel:?}");
    }
    for texts in [
        vec![caller.replace("(b), f, (a)", "f, (a)") + &callee("f", "")],
        vec![caller.replace("(b), f, (a)", "(b), f, (a, a)") + &callee("f", "")],
        vec![
            caller.replace(".param .b32 a;", ".param .b64 a;").replace("st.param.b32 [a+0], %r1;", "")
                + &callee("f", ""),
        ],
        // A name in the caller is not visible in the function.
        vec![caller.to_owned() + &callee("f", "add.s32 %r1, %r1, %r2x;\n").replace("%r<3>", "%r<2>")],
    ] {
        let texts: Vec<&str> = texts.iter().map(|text| &**text).collect();
        let kernel = linked(&texts).unwrap().kernel("k");
        let refused = matches!(
            kernel,
            Err(PtxError::Unsupported { .. } | PtxError::Syntax { .. } | PtxError::Undeclared { .. })
        );
        assert!(refused, "{texts:?}: {kernel:?}");
    }
}

#[test]
fn what_is_no_module_is_named() {
    let none = Input { name: "odd.ptx", text: b"hello" };
    let refused = link(&[none], &Effort::unlimited(Interrupt::default())).unwrap_err();
    assert!(matches!(&refused, LinkError::Ptx { input, .. } if input == "odd.ptx"), "{refused}");
    assert_eq!(link(&[], &Effort::unlimited(Interrupt::default())), Err(LinkError::Empty));
}

proptest! {
    /// No text causes a panic, and a linked text is a valid module.
    #[test]
    fn any_texts_are_linked_or_refused(parts in proptest::collection::vec(proptest::collection::vec(prop_oneof![
        Just(".visible .global .u32 x;\n"), Just(".extern .global .u32 x;\n"), Just(".weak .global .u32 x = 1;\n"),
        Just(".global .u32 x;\n"), Just(".global .u64 y = x;\n"), Just(".extern .shared .b8 s[];\n"), Just(".shared .u32 s;\n"),
        Just(".visible .func f()\n{\nret;\n}\n"), Just(".func f();\n"), Just(".entry k()\n{\ncall f;\nret;\n}\n"),
        Just(".extern .func f();\n"), Just(".pragma \"nounroll\";\n"), Just("// x\n"), Just(".section .debug { x }\n"),
        Just(".visible"), Just("}"), Just(".file 1 \"x\"\n"),
    ], 0..6), 0..4)) {
        let texts: Vec<String> = parts.iter().map(|parts| format!("{HEAD}{}", parts.concat())).collect();
        let inputs: Vec<Input<'_>> = texts.iter().map(|text| Input { name: "text", text: text.as_bytes() }).collect();
        if let Ok(text) = link(&inputs, &Effort::unlimited(Interrupt::default()))
            && let Ok(module) = Module::parse(text) {
                module.kernel_names().for_each(|name| drop(module.kernel(name)));
            }
    }
}
