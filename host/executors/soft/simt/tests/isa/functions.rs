//! Tests of calls of a module's functions: recursion, calls through addresses, parameters of all sizes, and
//! calls by diverged lanes.

use crate::case::Case;
use crate::device::{Device, Params, Shape, same};
use crate::values::Random;

/// Number of threads in a block: a whole warp and part of another.
const THREADS: u32 = 45;

/// Returns a kernel that stores the word `%r0` for each thread, which `code` computes from `%tid`. `%in` is
/// the address of a table.
fn kernel(name: &str, code: &str) -> String {
    format!(
        ".visible .entry {name}(.param .u64 in, .param .u64 out)\n{{\n.reg .b32 %r<20>, %tid;\n.reg .b64 %rd<20>, %in, %out;\n.reg .pred %p<5>;\n\
         ld.param.u64 %in, [in];\nld.param.u64 %out, [out];\nmov.u32 %tid, %tid.x;\nmul.wide.u32 %rd19, %tid, 4;\nadd.s64 %out, %out, %rd19;\n\
         {code}\nst.global.u32 [%out], %r0;\nret;\n}}\n"
    )
}

/// Returns PTX that calls a function with parameters and a result of 32 bits.
fn call(callee: &str, params: &[&str], result: &str, prototype: &str) -> String {
    let declared: String = params
        .iter()
        .enumerate()
        .map(|(at, value)| format!(".param .b32 param{at};\nst.param.b32 [param{at}+0], {value};\n"))
        .collect();
    let names: Vec<String> = (0..params.len()).map(|at| format!("param{at}")).collect();
    let separator = if prototype.is_empty() { "" } else { ", " };
    format!(
        "{{\n{declared}.param .b32 retval0;\ncall (retval0), {callee}, ({}){separator}{prototype};\nld.param.b32 {result}, [retval0+0];\n}}\n",
        names.join(", ")
    )
}

/// Runs the kernel `k` and returns the words that it stores.
fn results(device: &mut Device, table: u64) -> Result<Vec<u32>, String> {
    let out = device.allocate(4 * u64::from(THREADS));
    device.launch("k", Shape::line(1, THREADS), &Params::new().u64(table).u64(out))?;
    Ok(device.read_words(out, THREADS.into()))
}

/// Returns a case whose kernel `k` stores the words of the function `wanted`.
fn case(name: &str, text: &str, wanted: impl Fn(u32) -> u32 + Send + Sync + 'static) -> Case {
    Case::new(name, "call", text, move |device| {
        let wanted: Vec<u32> = (0..THREADS).map(&wanted).collect();
        same("words", &results(device, 0)?, &wanted)
    })
}

/// Returns a case whose kernel `k` ends with a fault of this code.
fn fails(name: &str, text: &str, code: u32) -> Case {
    Case::new(name, "call", text, move |device| {
        let out = device.allocate(4 * u64::from(THREADS));
        device.expect_fault("k", Shape::line(1, THREADS), &Params::new().u64(0).u64(out), code).map(drop)
    })
}

fn fib(n: u32) -> u32 {
    if n < 2 { n } else { fib(n - 1) + fib(n - 2) }
}

const FIB: &str = ".func (.param .b32 result) fib(.param .b32 n)\n{\n.reg .b32 %r<9>;\n.reg .pred %p;\nld.param.u32 %r0, [n];\nsetp.lt.u32 %p, %r0, 2;\n@%p bra DONE;\nsub.u32 %r1, %r0, 1;\n";

/// Computes the expected result of the recursive function in the PTX text below.
fn mixed(n: u32) -> u32 {
    if n == 0 {
        return 1;
    }
    let value = (mixed(n - 1).wrapping_mul(3).wrapping_add(n)) ^ (n * 0x10001);
    value.wrapping_add(if n % 2 == 1 { 5 } else { 0 }).wrapping_add(7 * n)
}

fn recursion(cases: &mut Vec<Case>) {
    let text = format!(
        "{FIB}{}sub.u32 %r3, %r0, 2;\n{}add.u32 %r0, %r2, %r4;\nDONE:\nst.param.b32 [result], %r0;\nret;\n}}\n{}",
        call("fib", &["%r1"], "%r2", ""),
        call("fib", &["%r3"], "%r4", ""),
        kernel("k", &("rem.u32 %r1, %tid, 9;\n".to_owned() + &call("fib", &["%r1"], "%r0", ""))),
    );
    cases.push(case("a function that calls itself", &text, |tid| fib(tid % 9)));

    // Registers of each width and a predicate live across the call, and a variable of each level's own.
    let text = format!(
        ".func (.param .b32 result) f(.param .b32 n)\n{{\n.reg .b32 %r<9>;\n.reg .b16 %h;\n.reg .b64 %d;\n.reg .pred %p, %odd;\n.local .align 8 .b32 mine[3];\n\
         ld.param.u32 %r0, [n];\nsetp.eq.u32 %p, %r0, 0;\nmov.u32 %r7, 1;\n@%p bra DONE;\n\
         cvt.u16.u32 %h, %r0;\nmul.wide.u32 %d, %r0, 0x10001;\nand.b32 %r1, %r0, 1;\nsetp.eq.u32 %odd, %r1, 1;\nst.local.u32 [mine+8], %r0;\nsub.u32 %r1, %r0, 1;\n\
         {}cvt.u32.u16 %r3, %h;\nmad.lo.u32 %r7, %r2, 3, %r3;\ncvt.u32.u64 %r3, %d;\nxor.b32 %r7, %r7, %r3;\n@%odd add.u32 %r7, %r7, 5;\nmov.u64 %d, mine;\nld.local.u32 %r3, [%d+8];\nmad.lo.u32 %r7, %r3, 7, %r7;\n\
         DONE:\nst.param.b32 [result], %r7;\nret;\n}}\n{}",
        call("f", &["%r1"], "%r2", ""),
        kernel("k", &("and.b32 %r1, %tid, 7;\n".to_owned() + &call("f", &["%r1"], "%r0", ""))),
    );
    cases.push(case("what lives across a call", &text, |tid| mixed(tid & 7)));

    // Two functions that call each other, the second by a guarded call.
    let text = format!(
        ".func (.param .b32 result) odd(.param .b32 n);\n.func (.param .b32 result) even(.param .b32 n)\n{{\n.reg .b32 %r<9>;\n.reg .pred %p;\n\
         ld.param.u32 %r0, [n];\nmov.u32 %r2, 1;\nsetp.eq.u32 %p, %r0, 0;\n@%p bra DONE;\nsub.u32 %r1, %r0, 1;\n{}DONE:\nst.param.b32 [result], %r2;\nret;\n}}\n\
         .func (.param .b32 result) odd(.param .b32 n)\n{{\n.reg .b32 %r<9>;\n.reg .pred %p;\nld.param.u32 %r0, [n];\nmov.u32 %r2, 0;\nsetp.ne.u32 %p, %r0, 0;\nsub.u32 %r1, %r0, 1;\n\
         .param .b32 a;\n.param .b32 b;\nst.param.b32 [a], %r1;\nst.param.b32 [b], %r2;\n@%p call (b), even, (a);\nld.param.b32 %r2, [b];\nst.param.b32 [result], %r2;\nret;\n}}\n{}",
        call("odd", &["%r1"], "%r2", ""),
        kernel("k", &call("even", &["%tid"], "%r0", "")),
    );
    cases.push(case("functions that call each other", &text, |tid| u32::from(tid.is_multiple_of(2))));

    let text = format!(
        ".func (.param .b32 result) f(.param .b32 n)\n{{\n.reg .b32 %r<9>;\nld.param.u32 %r0, [n];\nadd.u32 %r1, %r0, 1;\n{}st.param.b32 [result], %r2;\nret;\n}}\n{}",
        call("f", &["%r1"], "%r2", ""),
        kernel("k", &call("f", &["%tid"], "%r0", "")),
    );
    cases.push(fails("a function that never ends", &text, 714));
}

/// Computes the expected result of the function with structures in the PTX text.
#[allow(clippy::many_single_char_names, reason = "as the text above has them")]
fn structure(a: u32, b: u32, d: u64, c: u32, n: u32) -> (u32, u64, u32) {
    let (a, c, d) = (a.wrapping_add(1), (c & 0xff) + 2, d + 3);
    if n == 0 {
        return (a, d, c & 0xff);
    }
    // Each level passes the first word in place of the byte, too.
    let (x, y, z) = structure(a, b, d, a, n - 1);
    (x.wrapping_add(a).wrapping_add(b), y, (c + z) & 0xff)
}

fn memory(cases: &mut Vec<Case>) {
    // A structure of 20 bytes is passed and returned with changes. The caller's own stays as it was.
    let call_with = |callee: &str, last: &str| {
        format!(
            "{{\n.param .align 8 .b8 param0[20];\nst.param.v2.b32 [param0], {{%r1, %r2}};\nst.param.b64 [param0+8], %rd1;\nst.param.b8 [param0+17], %r1;\n\
             .param .b32 param1;\nst.param.b32 [param1], %r3;\n.param .align 8 .b8 retval0[20];\ncall (retval0), {callee}, (param0, param1){last};\n\
             ld.param.b32 %r4, [retval0];\nld.param.b64 %rd2, [retval0+8];\nld.param.u8 %r5, [retval0+17];\nld.param.b32 %r6, [param0+4];\n}}\n"
        )
    };
    let function = format!(
        ".func (.param .align 8 .b8 result[20]) f(.param .align 8 .b8 s[20], .param .b32 n)\n{{\n.reg .b32 %r<9>;\n.reg .b64 %rd<4>;\n.reg .pred %p;\n\
         ld.param.u32 %r3, [n];\nld.param.v2.u32 {{%r1, %r2}}, [s];\nld.param.u64 %rd1, [s+8];\nld.param.u8 %r7, [s+17];\nadd.u32 %r1, %r1, 1;\nadd.u32 %r7, %r7, 2;\nadd.u64 %rd1, %rd1, 3;\n\
         mov.u32 %r4, %r1;\nmov.u64 %rd2, %rd1;\nsetp.eq.u32 %p, %r3, 0;\n@%p bra DONE;\nsub.u32 %r3, %r3, 1;\n{}add.u32 %r4, %r4, %r1;\nadd.u32 %r7, %r7, %r5;\nadd.u32 %r4, %r4, %r6;\n\
         DONE:\nst.param.b32 [result], %r4;\nst.param.b64 [result+8], %rd2;\nst.param.b8 [result+17], %r7;\nret;\n}}\n",
        call_with("f", "")
    );
    for (name, callee, last, before) in [
        ("structures", "f", "", ""),
        (
            "structures through an address",
            "%rd9",
            ", proto",
            "mov.u64 %rd9, f;\nproto: .callprototype (.param .align 8 .b8 _[20]) _ (.param .align 8 .b8 _[20], .param .b32 _);\n",
        ),
    ] {
        let code = format!(
            "{before}mov.u32 %r1, %tid;\nmov.u32 %r2, 1000;\nmul.wide.u32 %rd1, %tid, 65537;\nand.b32 %r3, %tid, 3;\n{}cvt.u32.u64 %r0, %rd2;\nmad.lo.u32 %r0, %r0, 31, %r4;\nmad.lo.u32 %r0, %r0, 31, %r5;\nadd.u32 %r0, %r0, %r6;\n",
            call_with(callee, last)
        );
        cases.push(case(name, &(function.clone() + &kernel("k", &code)), |tid| {
            let (a, d, c) = structure(tid, 1000, u64::from(tid) * 65537, tid, tid & 3);
            (d as u32).wrapping_mul(31).wrapping_add(a).wrapping_mul(31).wrapping_add(c).wrapping_add(1000)
        }));
    }
    // Bytes and halves, alone and in words, and registers as parameters.
    let text = format!(
        ".func (.param .b16 result) f(.param .b8 a, .param .b32 b, .reg .b32 c)\n{{\n.reg .b32 %r<9>;\n.reg .b16 %h;\nld.param.s8 %r0, [a];\nld.param.u8 %r1, [b];\nld.param.s8 %r2, [b];\n\
         add.u32 %r0, %r0, %r1;\nadd.u32 %r0, %r0, %r2;\nadd.u32 c, c, %r0;\ncvt.u16.u32 %h, c;\nst.param.b16 [result], %h;\nret;\n}}\n{}",
        kernel(
            "k",
            "{\n.param .b8 a;\n.param .b32 b;\n.param .b16 x;\nmul.lo.u32 %r1, %tid, 9;\nst.param.b8 [a], %r1;\nst.param.b8 [b], %r1;\ncall (x), f, (a, b, %r1);\nld.param.u16 %r0, [x];\nadd.u32 %r0, %r0, %r1;\n}"
        )
    );
    cases.push(case("bytes and registers", &text, |tid| {
        let byte = (9 * tid) & 0xff;
        let signed = i32::from(byte as u8 as i8);
        let sum = 2 * signed + byte.cast_signed() + (9 * tid).cast_signed();
        u32::from(sum as u16) + 9 * tid
    }));
}

/// Returns PTX with three functions of two words and a table of their addresses.
fn three() -> String {
    let function = |name: &str, op: &str| {
        format!(
            ".func (.param .b32 result) {name}(.param .b32 a, .param .b32 b)\n{{\n.reg .b32 %r<3>;\nld.param.u32 %r0, [a];\nld.param.u32 %r1, [b];\n{op} %r2, %r0, %r1;\nst.param.b32 [result], %r2;\nret;\n}}\n"
        )
    };
    [function("sum", "add.u32"), function("difference", "sub.u32"), function("product", "mul.lo.u32")]
        .concat()
        + ".func other(.param .b64 a)\n{\nret;\n}\n.global .align 8 .u64 functions[5] = {sum, 0, difference, product, other};\n"
}

const PROTOTYPE: &str = "proto: .callprototype (.param .b32 _) _ (.param .b32 _, .param .b32 _);\n";

fn addresses(cases: &mut Vec<Case>) {
    let pick = "and.b32 %r1, %tid, 3;\nmax.u32 %r1, %r1, 2;\nsub.u32 %r1, %r1, 1;\nmul.lo.u32 %r2, %r1, 8;\ncvt.u64.u32 %rd1, %r2;\nmov.u64 %rd2, functions;\nadd.s64 %rd2, %rd2, %rd1;\nsetp.eq.u32 %p0, %r1, 1;\n@%p0 sub.s64 %rd2, %rd2, 8;\nld.global.u64 %rd3, [%rd2];\n";
    // The index of the function is 0 for `tid & 3` of 0 to 2, and 2 for 3: the sum or the difference.
    let reference = |tid: u32| if tid & 3 == 3 { tid.wrapping_sub(7) } else { tid + 7 };
    let text =
        three() + &kernel("k", &format!("{pick}{PROTOTYPE}{}", call("%rd3", &["%tid", "7"], "%r0", "proto")));
    cases.push(case("lanes call different functions", &text, reference));
    let targets = "list: .calltargets sum, difference;\n";
    let text =
        three() + &kernel("k", &format!("{pick}{targets}{}", call("%rd3", &["%tid", "7"], "%r0", "list")));
    cases.push(case("a list of functions", &text, reference));
    // Another kernel stores the address, which this one calls.
    let store = ".visible .entry store(.param .u64 to)\n{\n.reg .b64 %rd<3>;\nld.param.u64 %rd0, [to];\nmov.u64 %rd1, product;\nst.global.u64 [%rd0], %rd1;\nret;\n}\n";
    let code =
        format!("ld.global.u64 %rd3, [%in];\n{PROTOTYPE}{}", call("%rd3", &["%tid", "7"], "%r0", "proto"));
    cases.push(Case::new(
        "an address from another kernel",
        "call",
        &(three() + store + &kernel("k", &code)),
        |device| {
            let at = device.allocate(8);
            device.launch("store", Shape::line(1, 1), &Params::new().u64(at))?;
            let wanted: Vec<u32> = (0..THREADS).map(|tid| 7 * tid).collect();
            same("words", &results(device, at)?, &wanted)
        },
    ));
    // No function of the module has these parameters.
    let code = "mov.u64 %rd3, 0;\nnone: .callprototype _ ();\ncall %rd3, none;\n";
    cases.push(fails("a call where there is no function", &kernel("k", code), 718));
    for (name, address) in [
        ("no function", "0"),
        ("within a function", "sum;\nadd.s64 %rd3, %rd3, 1"),
        ("a function with other parameters", "other"),
        ("a variable", "functions"),
    ] {
        let code =
            format!("mov.u64 %rd3, {address};\n{PROTOTYPE}{}", call("%rd3", &["%tid", "7"], "%r0", "proto"));
        cases.push(fails(&format!("a call of {name}"), &(three() + &kernel("k", &code)), 718));
    }
}

fn many(cases: &mut Vec<Case>) {
    // Each function calls the next one twice: more copies than a text may have.
    let (levels, mut text) = (30, String::new());
    for level in (0..levels).rev() {
        let next = format!("f{}", level + 1);
        let body = if level + 1 == levels {
            "add.u32 %r3, %r0, 1;\n".to_owned()
        } else if level < 3 {
            call(&next, &["%r0"], "%r1", "") + &call(&next, &["%r1"], "%r3", "")
        } else {
            call(&next, &["%r0"], "%r3", "")
        };
        text += &format!(
            ".func (.param .b32 result) f{level}(.param .b32 n)\n{{\n.reg .b32 %r<5>;\nld.param.u32 %r0, [n];\n{body}st.param.b32 [result], %r3;\nret;\n}}\n"
        );
    }
    let text = text + &kernel("k", &call("f0", &["%tid"], "%r0", ""));
    cases.push(case("a deep nest of functions", &text, |tid| tid + 8));

    // All threads wait at a barrier within the function, which they call from two branches.
    let text = format!(
        ".shared .b32 words[64];\n.func (.param .b32 result) f(.param .b32 n)\n{{\n.reg .b32 %r<9>;\n.reg .pred %p;\nld.param.u32 %r0, [n];\nmov.u32 %r1, %tid.x;\nsetp.gt.u32 %p, %r0, 1000;\nmov.u32 %r4, 0;\n@%p bra DEEPER;\n\
         mov.u32 %r2, words;\nmad.lo.u32 %r2, %r1, 4, %r2;\nst.shared.u32 [%r2], %r0;\nbar.sync 0;\nmov.u32 %r3, {last};\nsub.u32 %r3, %r3, %r1;\nmov.u32 %r2, words;\nmad.lo.u32 %r2, %r3, 4, %r2;\nld.shared.u32 %r4, [%r2];\nbra DONE;\n\
         DEEPER:\nsub.u32 %r5, %r0, 1000;\n{}DONE:\nst.param.b32 [result], %r4;\nret;\n}}\n{}",
        call("f", &["%r5"], "%r4", ""),
        kernel(
            "k",
            &format!(
                "and.b32 %r1, %tid, 3;\nmul.lo.u32 %r1, %r1, 1000;\nadd.u32 %r1, %r1, %tid;\nadd.u32 %r1, %r1, 1;\n{}",
                call("f", &["%r1"], "%r0", "")
            )
        ),
        last = THREADS - 1,
    );
    cases.push(case("a barrier within a function", &text, |tid| THREADS - tid));
}

/// Random functions that call each other, each with the parameters `depth` and `x`.
struct CallProgram {
    functions: Vec<Vec<CallStep>>,
}

/// One call in a random function: of a fixed function, or of the function of the table that `x` selects. Its
/// result is combined with a constant.
#[derive(Clone, Copy)]
struct CallStep {
    callee: Option<usize>,
    constant: u32,
}

impl CallProgram {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let count = 3 + random.below(4) as usize;
        let step = |random: &mut Random| CallStep {
            callee: (random.below(3) > 0).then(|| random.below(count as u64) as usize),
            constant: random.below(1 << 20) as u32,
        };
        let functions =
            (0..count).map(|_| (0..=random.below(3)).map(|_| step(&mut random)).collect()).collect();
        Self { functions }
    }

    fn call_function(&self, function: usize, depth: u32, x: u32) -> u32 {
        let mut value = x.wrapping_mul(2_654_435_761).wrapping_add(function as u32);
        if depth == 0 {
            return value;
        }
        for (at, step) in self.functions[function].iter().enumerate() {
            // Some lanes skip a call.
            if (value >> at) & 3 == 3 {
                continue;
            }
            let callee = step.callee.unwrap_or((value % self.functions.len() as u32) as usize);
            let result = self.call_function(callee, depth - 1, value ^ step.constant);
            value = value.wrapping_mul(31).wrapping_add(result) ^ x;
        }
        value
    }

    fn text(&self) -> String {
        let count = self.functions.len();
        let mut text: String = (0..count)
            .map(|at| format!(".func (.param .b32 result) f{at}(.param .b32 depth, .param .b32 x);\n"))
            .collect();
        let names: Vec<String> = (0..count).map(|at| format!("f{at}")).collect();
        text += &format!(".global .align 8 .u64 table[{count}] = {{{}}};\n", names.join(", "));
        for (at, steps) in self.functions.iter().enumerate() {
            text += &format!(
                ".func (.param .b32 result) f{at}(.param .b32 depth, .param .b32 x)\n{{\n.reg .b32 %r<9>;\n.reg .b64 %rd<3>;\n.reg .pred %p;\nld.param.u32 %r0, [depth];\nld.param.u32 %r1, [x];\n\
                 mad.lo.u32 %r2, %r1, 2654435761, {at};\nsetp.eq.u32 %p, %r0, 0;\n@%p bra DONE;\nsub.u32 %r3, %r0, 1;\n"
            );
            for (index, step) in steps.iter().enumerate() {
                text += &format!(
                    "shr.u32 %r4, %r2, {index};\nand.b32 %r4, %r4, 3;\nsetp.eq.u32 %p, %r4, 3;\n@%p bra SKIP{index};\nxor.b32 %r5, %r2, {};\n",
                    step.constant
                );
                text += &match step.callee {
                    Some(callee) => call(&format!("f{callee}"), &["%r3", "%r5"], "%r6", ""),
                    None => format!(
                        "rem.u32 %r4, %r2, {count};\nmul.wide.u32 %rd0, %r4, 8;\nmov.u64 %rd1, table;\nadd.s64 %rd1, %rd1, %rd0;\nld.global.u64 %rd2, [%rd1];\nproto{index}: .callprototype (.param .b32 _) _ (.param .b32 _, .param .b32 _);\n{}",
                        call("%rd2", &["%r3", "%r5"], "%r6", &format!("proto{index}"))
                    ),
                };
                text += &format!("mad.lo.u32 %r2, %r2, 31, %r6;\nxor.b32 %r2, %r2, %r1;\nSKIP{index}:\n");
            }
            text += "DONE:\nst.param.b32 [result], %r2;\nret;\n}\n";
        }
        text + &kernel("k", &call("f0", &["4", "%tid"], "%r0", ""))
    }
}

fn random(cases: &mut Vec<Case>) {
    for seed in 0..24 {
        let program = CallProgram::new(seed);
        let text = program.text();
        cases.push(case(&format!("functions at random {seed}"), &text, move |tid| {
            program.call_function(0, 4, tid)
        }));
    }
}

/// Adds a test of a call that expects a result of a function without one. Linkers produce such calls, and
/// numba's tests contain one.
fn nothing(cases: &mut Vec<Case>) {
    let call = |value: &str, at: &str| {
        format!(
            "{{\n.param .b64 param0;\nst.param.b64 [param0], {at};\n\
             .param .b32 param1;\nst.param.b32 [param1], {value};\n\
             .param .b32 retval0;\ncall (retval0), add, (param0, param1);\n}}\n"
        )
    };
    // The function adds all numbers up to the value.
    let function = format!(
        ".func add(.param .b64 at, .param .b32 value)\n{{\n\
         .reg .b32 %r<4>;\n.reg .b64 %rd1;\n.reg .pred %p;\n\
         ld.param.u64 %rd1, [at];\nld.param.u32 %r1, [value];\nld.u32 %r2, [%rd1];\nadd.u32 %r2, %r2, %r1;\n\
         st.u32 [%rd1], %r2;\nsetp.eq.u32 %p, %r1, 0;\n@%p bra DONE;\n\
         sub.u32 %r1, %r1, 1;\n{}DONE:\nret;\n}}\n",
        call("%r1", "%rd1")
    );
    // More calls than there are copies of a function.
    let calls = call("%tid", "%out").repeat(70);
    let code = format!("mov.u32 %r0, 0;\nst.global.u32 [%out], %r0;\n{calls}ld.global.u32 %r0, [%out];\n");
    let text = format!("{function}{}", kernel("k", &code));
    cases.push(case("a result that a function does not have", &text, |tid| 70 * (tid * (tid + 1) / 2)));
}

pub fn cases(cases: &mut Vec<Case>) {
    recursion(cases);
    nothing(cases);
    memory(cases);
    addresses(cases);
    many(cases);
    random(cases);
}
