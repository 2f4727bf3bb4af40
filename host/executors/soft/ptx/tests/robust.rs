//! Tests with arbitrary texts: the parser returns a result or an error, never panics, and spends time and
//! memory in proportion to the text.

#![forbid(unsafe_code)]

use proptest::prelude::*;
use vgpu_ptx::analysis::{self, Assume};
use vgpu_ptx::{Effort, Interrupt, Module};

/// Parses everything in a text. Returns the number of kernels that were parsed.
fn read(text: &[u8]) -> usize {
    let Ok(module) = Module::parse(text) else { return 0 };
    let names: Vec<&str> = module.kernel_names().collect();
    let mut parsed = 0;
    for name in names {
        match module.kernel(name) {
            Ok(kernel) => {
                parsed += 1;
                let analysis =
                    analysis::analyse(&kernel, Assume::default(), &Effort::of_kernel(Interrupt::default()))
                        .expect("little effort");
                let slots = analysis::slots(&kernel, &analysis);
                assert_eq!(slots.of.len(), kernel.registers.len());
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    parsed
}

const SAMPLE: &str = include_str!("sample.ptx");
const FUNCTIONS: &str = include_str!("functions.ptx");

#[test]
fn the_sample_is_read() {
    assert_eq!(read(SAMPLE.as_bytes()), 2);
    assert_eq!(read(&[SAMPLE.as_bytes(), &[0; 9]].concat()), 2, "as a C string");
    assert_eq!(read(FUNCTIONS.as_bytes()), 1);
}

/// Splits a sample into words, numbers, marks and blanks.
fn pieces(sample: &'static str) -> Vec<&'static str> {
    let class = |c: char| (c.is_ascii_alphanumeric() || "_$%.".contains(c), c.is_whitespace());
    let mut pieces = Vec::new();
    let mut start = 0;
    let chars: Vec<(usize, char)> = sample.char_indices().collect();
    for pair in chars.windows(2) {
        let [(_, a), (at, b)] = pair else { continue };
        if class(*a) != class(*b) || class(*a) == (false, false) {
            pieces.push(&sample[start..*at]);
            start = *at;
        }
    }
    pieces.push(&sample[start..]);
    pieces
}

/// Change of the list of pieces.
#[derive(Clone, Debug)]
enum TextChange {
    Drop(prop::sample::Index),
    Double(prop::sample::Index),
    Copy(prop::sample::Index, prop::sample::Index),
    Put(prop::sample::Index, &'static str),
}

fn change() -> impl Strategy<Value = TextChange> {
    let odd = vec![
        "{",
        "}",
        "(",
        ")",
        "[",
        "]",
        ";",
        ",",
        ":",
        "@",
        "!",
        "|",
        "<",
        ">",
        "-",
        "+",
        "_",
        "\"",
        "//",
        "/*",
        "*/",
        "0",
        "18446744073709551615",
        "4294967296",
        "-1",
        "0f",
        "0fFFFFFFFF",
        "1e999",
        "%r",
        "%r99999999",
        ".reg",
        ".entry",
        ".shared",
        ".v4",
        ".b8",
        ".pred",
        "bra",
        "mov.b64",
        "ld.param.u32",
        "call",
        "L1::x",
        "generic",
        ".calltargets",
        "even",
        "prototype_0",
        ".func",
        ".align",
        "9223372036854775807",
        "\u{e9}",
        "\0",
    ];
    let index = any::<prop::sample::Index>;
    prop_oneof![
        index().prop_map(TextChange::Drop),
        index().prop_map(TextChange::Double),
        (index(), index()).prop_map(|(from, to)| TextChange::Copy(from, to)),
        (index(), prop::sample::select(odd)).prop_map(|(at, piece)| TextChange::Put(at, piece)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        read(&bytes);
    }

    #[test]
    fn any_bytes_in_a_body(bytes in prop::collection::vec(prop_oneof![
        4 => prop::sample::select(b"%r1,;{}[]().@!_+-|<>:\"/*0fx \n".to_vec()), 1 => any::<u8>(),
    ], 0..120)) {
        let mut text = b".version 8.4\n.target sm_61\n.address_size 64\n.entry k()\n{\n.reg .b32 %r<3>;\n".to_vec();
        text.extend(bytes);
        text.extend(b"\n}\n");
        read(&text);
    }

    #[test]
    fn a_changed_sample(functions: bool, changes in prop::collection::vec(change(), 1..6)) {
        let mut pieces = pieces(if functions { FUNCTIONS } else { SAMPLE });
        for change in changes {
            let count = pieces.len();
            match change {
                TextChange::Drop(at) => drop(pieces.remove(at.index(count))),
                TextChange::Double(at) => pieces.insert(at.index(count), pieces[at.index(count)]),
                TextChange::Copy(from, to) => pieces[to.index(count)] = pieces[from.index(count)],
                TextChange::Put(at, piece) => pieces[at.index(count)] = piece,
            }
        }
        read(pieces.concat().as_bytes());
    }

    #[test]
    fn a_cut_sample(functions: bool, cut in 0..FUNCTIONS.len(), places in prop::collection::vec((0..FUNCTIONS.len(), any::<u8>()), 0..4)) {
        let mut text = if functions { FUNCTIONS } else { SAMPLE }.as_bytes().to_vec();
        for (place, byte) in places {
            text[place] = byte;
        }
        read(&text);
        text.truncate(cut);
        read(&text);
    }
}

fn body(body: &str) -> Vec<u8> {
    format!(".version 8.4\n.target sm_61\n.address_size 64\n.entry k()\n{{\n.reg .pred %p<2>;\n{body}\n}}\n")
        .into_bytes()
}

/// A text that exceeds a limit is refused.
#[test]
fn claims_are_limited() {
    let error = |text: Vec<u8>| {
        let module = Module::parse(text)?;
        module.kernel("k").map(|_| ())
    };
    let limited = |text: &str| error(body(text)).unwrap_err().to_string();
    for (text, what) in [
        (".reg .b32 %r<4294967296>;".to_owned(), "registers"),
        (".reg .b32 %r<700000>;\n.reg .b32 %s<700000>;".to_owned(), "registers"),
        (".shared .b8 a[1048577];".to_owned(), "bytes of shared memory"),
        (".shared .b8 a[4294967295][4294967295];".to_owned(), "bytes in a variable"),
        (".local .align 4096 .b8 a[524289];".to_owned(), "bytes of local memory"),
        ("{".repeat(100) + &"}".repeat(100), "nested scopes"),
        ("@%p0 ret;\n".repeat(20_000), "blocks"),
    ] {
        let message = limited(&text);
        assert!(message.ends_with(what), "{message}");
    }
    let wide = format!(".reg .b32 a;\n.reg .b32 %r<60000>;\n{}", {
        let reads: Vec<String> = (0..60_000).map(|index| format!("mov.u32 a, %r{index};\n")).collect();
        reads.concat() + &"@%p0 bra L;\n".repeat(5_000) + "L:"
    });
    assert!(limited(&wide).ends_with("registers times blocks"));
    let many = |count: usize, body: &str| {
        let functions: Vec<String> =
            (0..count).map(|at| format!(".func f{at}()\n{{\n{body}ret;\n}}\n")).collect();
        let functions = functions.concat();
        let names: Vec<String> = (0..count).map(|at| format!("f{at}")).collect();
        format!(
            ".version 8.4\n.target sm_61\n.address_size 64\n{functions}.global .u64 t[{count}] = {{{}}};\n.entry k()\n{{\n.reg .b64 %d;\np: .callprototype _ ();\ncall %d, (), p;\n}}\n",
            names.join(", ")
        )
    };
    let call = ".reg .b64 %d;\np: .callprototype _ ();\ncall %d, (), p;\n";
    assert!(error(many(500, "").into_bytes()).is_ok());
    assert!(error(many(3000, "").into_bytes()).unwrap_err().to_string().ends_with("functions"));
    assert!(error(many(200, call).into_bytes()).unwrap_err().to_string().ends_with("blocks"));
    let params = ".version 8.4\n.target sm_61\n.address_size 64\n.entry k(.param .b8 p[40000])\n{\n}\n";
    assert!(error(params.as_bytes().to_vec()).unwrap_err().to_string().ends_with("bytes of parameters"));
}
