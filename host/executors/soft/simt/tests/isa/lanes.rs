//! Tests of instructions that compute one result from a lane's own operands. Each is executed in all forms
//! that an engine may treat differently, on the same operands:
//!
//! - `varying`: each lane has its own operands, and the last warp is not full;
//! - `aliased`: the destination is the register of a source;
//! - `masked`: some lanes do not execute the instruction, and must keep their values;
//! - `uniform`: all lanes have the same operands;
//! - `mixed`: one operand is the same for all lanes, the others differ;
//! - `constant`: one operand is written in the instruction.

use std::fmt::Write as _;
use std::sync::Arc;

use crate::case::{Case, HEADER};
use crate::device::{Device, Params, Shape};
use crate::expect::Expect;
use crate::values::{Domain, tuples};

/// Type of the registers that hold an operand, which also determines the notation of constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperandKind {
    Pred,
    B16,
    B32,
    B64,
    /// A half in a `.b16` register. There is no notation for constants of this kind.
    F16,
    /// Two halves in a `.b32` register. There is no notation for constants of this kind.
    Packed,
    F32,
    F64,
}

impl OperandKind {
    /// Returns the PTX type of the registers.
    const fn register(self) -> &'static str {
        match self {
            Self::Pred => ".pred",
            Self::B16 | Self::F16 => ".b16",
            Self::B32 | Self::Packed => ".b32",
            Self::B64 => ".b64",
            Self::F32 => ".f32",
            Self::F64 => ".f64",
        }
    }

    /// Returns the PTX type for loads and stores.
    const fn memory(self) -> &'static str {
        match self {
            Self::Pred => ".b32",
            other => other.register(),
        }
    }

    /// Returns the size in memory in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Self::B16 | Self::F16 => 2,
            Self::Pred | Self::B32 | Self::Packed | Self::F32 => 4,
            Self::B64 | Self::F64 => 8,
        }
    }

    /// Returns a constant in PTX, or `None` if this kind has no notation. Signed and unsigned notations
    /// alternate.
    fn constant(self, bits: u64) -> Option<String> {
        Some(match self {
            Self::B16 if bits.is_multiple_of(2) => format!("{}", bits as u16 as i16),
            Self::B16 => format!("{:#x}", bits as u16),
            Self::B32 if bits.is_multiple_of(2) => format!("{}", bits as u32 as i32),
            Self::B32 => format!("{:#X}", bits as u32),
            Self::B64 if bits.is_multiple_of(2) => format!("{}", bits as i64),
            Self::B64 => format!("{bits:#x}"),
            Self::F32 => format!("0f{:08X}", bits as u32),
            Self::F64 => format!("0d{bits:016X}"),
            Self::Pred | Self::F16 | Self::Packed => return None,
        })
    }
}

/// Types of `mov` and `selp`, each with its operand kind and domain.
pub const COPIED: [(&str, (OperandKind, Domain)); 11] = [
    ("b16", (OperandKind::B16, Domain::Int(16))),
    ("u16", (OperandKind::B16, Domain::Int(16))),
    ("s16", (OperandKind::B16, Domain::Int(16))),
    ("b32", (OperandKind::B32, Domain::Int(32))),
    ("u32", (OperandKind::B32, Domain::Int(32))),
    ("s32", (OperandKind::B32, Domain::Int(32))),
    ("f32", (OperandKind::F32, Domain::F32)),
    ("b64", (OperandKind::B64, Domain::Int(64))),
    ("u64", (OperandKind::B64, Domain::Int(64))),
    ("s64", (OperandKind::B64, Domain::Int(64))),
    ("f64", (OperandKind::F64, Domain::F64)),
];

/// Value that lanes must keep in `masked` if they do not execute the instruction. For a predicate, its lowest
/// bit counts.
const KEPT: u64 = 0x3c5a_3c5a_3c5a_3c5b;
/// Value of the bytes that fill the memory of the results before a launch.
const UNTOUCHED: u8 = 0xa5;
/// Number of threads in a block, which are two warps.
const BLOCK: u32 = 64;

type Reference = Arc<dyn Fn(&[u64]) -> Expect + Send + Sync>;

/// Description of a test: an instruction, its operands and its reference.
pub struct Lanes {
    name: String,
    spelling: String,
    body: String,
    dst: OperandKind,
    src: Vec<OperandKind>,
    domains: Vec<Domain>,
    extra: usize,
    also: Vec<Vec<u64>>,
    reference: Reference,
}

impl Lanes {
    /// Creates a case for `spelling d, a, b, ...`. The reference receives the sources' bits as they are in
    /// registers.
    pub fn new(
        spelling: &str,
        dst: OperandKind,
        src: &[(OperandKind, Domain)],
        reference: impl Fn(&[u64]) -> Expect + Send + Sync + 'static,
    ) -> Self {
        let sources: String = (0..src.len()).fold(String::new(), |mut text, index| {
            let _ = write!(text, ", ${index}");
            text
        });
        Self {
            name: spelling.into(),
            spelling: spelling.into(),
            body: format!("{spelling} $d{sources};"),
            dst,
            src: src.iter().map(|&(kind, _)| kind).collect(),
            domains: src.iter().map(|&(_, domain)| domain).collect(),
            extra: 400,
            also: Vec::new(),
            reference: Arc::new(reference),
        }
    }

    /// Replaces the PTX statements. `$d` is the destination, and `$0`, `$1` and so on are sources. The
    /// destination must be written last.
    pub fn body(mut self, body: &str) -> Self {
        self.body = body.into();
        self
    }

    /// Replaces the name, which is the spelling by default.
    pub fn named(mut self, name: &str) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the number of random operand tuples.
    pub fn extra(mut self, extra: usize) -> Self {
        self.extra = extra;
        self
    }

    /// Adds operand tuples, which are tested besides the random ones.
    pub fn also(mut self, tuples: Vec<Vec<u64>>) -> Self {
        self.also = tuples;
        self
    }

    /// Returns the PTX statements with registers in place of operands. `replaced` has other text for some
    /// sources.
    fn statements(&self, dst: &str, replaced: &[(usize, &str)]) -> String {
        let mut text = self.body.replace("$d", dst);
        for index in (0..self.src.len()).rev() {
            let other = replaced.iter().find(|&&(at, _)| at == index);
            let name = other.map_or_else(|| format!("%a{index}"), |&(_, name)| name.into());
            text = text.replace(&format!("${index}"), &name);
        }
        text
    }

    /// Returns PTX that loads source `index` of the operand tuple `entry` from the table.
    fn load(&self, index: usize, entry: &str, dst: &str) -> String {
        let memory = self.src[index].memory();
        let mut text = format!(
            "mad.lo.u32 %r0, %n, {index}, {entry};\nmul.wide.u32 %rd0, %r0, 8;\nadd.s64 %rd0, %rd0, %in;\n"
        );
        if self.src[index] == OperandKind::Pred {
            let _ = writeln!(text, "ld.global.b32 %r0, [%rd0];\nsetp.ne.u32 {dst}, %r0, 0;");
        } else {
            let _ = writeln!(text, "ld.global{memory} {dst}, [%rd0];");
        }
        text
    }

    fn load_all(&self, entry: &str) -> String {
        (0..self.src.len()).map(|index| self.load(index, entry, &format!("%a{index}"))).collect()
    }

    /// Returns PTX that stores `value` as the result of tuple `entry` in part `part`.
    fn store(&self, value: &str, part: usize, entry: &str) -> String {
        let memory = self.dst.memory();
        let (convert, value) = if self.dst == OperandKind::Pred {
            (format!("selp.b32 %r1, 1, 0, {value};\n"), "%r1")
        } else {
            (String::new(), value)
        };
        format!(
            "{convert}mad.lo.u32 %r0, %n, {part}, {entry};\nmul.wide.u32 %rd0, %r0, 8;\nadd.s64 %rd0, %rd0, %out;\n\
             st.global{memory} [%rd0], {value};\n"
        )
    }

    /// Returns a kernel whose threads execute `code`, each for the operand tuple `%e`.
    fn entry(&self, name: &str, code: &str) -> String {
        let mut registers = String::new();
        for (index, kind) in self.src.iter().enumerate() {
            let _ = write!(
                registers,
                ".reg {} %a{index};\n.reg {} %b{index};\n",
                kind.register(),
                kind.register()
            );
        }
        format!(
            "\n.visible .entry {name}(.param .u64 in, .param .u64 out, .param .u32 n)\n{{\n\
             .reg .b64 %in, %out, %rd0;\n.reg .b32 %n, %e, %r0, %r1, %r2, %r3;\n.reg .pred %g, %h, %p0, %p1;\n\
             .reg {} %d;\n{registers}\
             ld.param.u64 %in, [in];\nld.param.u64 %out, [out];\nld.param.u32 %n, [n];\n\
             mov.u32 %r0, %ctaid.x;\nmov.u32 %r1, %ntid.x;\nmov.u32 %r2, %tid.x;\nmad.lo.u32 %e, %r0, %r1, %r2;\n\
             setp.ge.u32 %g, %e, %n;\n@%g bra DONE;\n{code}DONE:\nret;\n}}\n",
            self.dst.register()
        )
    }

    fn varying(&self) -> String {
        let code = self.load_all("%e") + &self.statements("%d", &[]) + "\n" + &self.store("%d", 0, "%e");
        self.entry("varying", &code)
    }

    /// Returns the indices of the sources whose register can also be the destination.
    fn aliases(&self) -> Vec<usize> {
        (0..self.src.len()).filter(|&index| self.src[index].register() == self.dst.register()).collect()
    }

    fn aliased(&self) -> String {
        let parts = self.aliases().into_iter().enumerate().map(|(part, index)| {
            let register = format!("%a{index}");
            self.load_all("%e") + &self.statements(&register, &[]) + "\n" + &self.store(&register, part, "%e")
        });
        self.entry("aliased", &parts.collect::<String>())
    }

    fn masked(&self) -> String {
        let preset = match self.dst {
            OperandKind::Pred => "setp.eq.u32 %d, %e, %e;".into(),
            OperandKind::F16 => format!("mov.b16 %d, {:#x};", KEPT as u16),
            kind => {
                let constant =
                    if kind == OperandKind::Packed { OperandKind::B32 } else { kind }.constant(KEPT);
                format!("mov{} %d, {};", kind.memory(), constant.unwrap_or_default())
            }
        };
        let code = self.load_all("%e")
            + &preset
            + "\nshr.u32 %r0, %e, 2;\nxor.b32 %r0, %r0, %e;\nand.b32 %r0, %r0, 1;\nsetp.eq.u32 %g, %r0, 0;\n@%g bra JOIN;\n"
            + &self.statements("%d", &[])
            + "\nJOIN:\n"
            + &self.store("%d", 0, "%e");
        self.entry("masked", &code)
    }

    /// Returns a kernel in which all threads of a warp process all tuples together. Each result is stored by
    /// one of them.
    fn uniform(&self) -> String {
        let code = "mov.u32 %r3, 0;\nLOOP:\n".to_owned()
            + &self.load_all("%r3")
            + &self.statements("%d", &[])
            + "\nand.b32 %r0, %r3, 31;\nsetp.ne.u32 %g, %r0, %e;\n@%g bra NEXT;\n"
            + &self.store("%d", 0, "%r3")
            + "NEXT:\nadd.u32 %r3, %r3, 1;\nsetp.lt.u32 %g, %r3, %n;\n@%g bra LOOP;\n";
        self.entry("uniform", &code)
    }

    /// Returns pairs of a source and a tuple, whose operand all lanes then share.
    fn shared(&self, tuples: usize, any: bool) -> Vec<(usize, usize)> {
        let sources = (0..self.src.len()).filter(|_| self.src.len() > 1);
        let useful = sources.filter(|&index| any || self.src[index].constant(0).is_some());
        let picks = [0, 1, 2, 3, 4].map(|pick| (pick * tuples / 5 + pick * 7) % tuples);
        useful.flat_map(|index| picks.map(|pick| (index, pick))).collect()
    }

    fn mixed(&self, count: usize) -> String {
        let parts = self.shared(count, true).into_iter().enumerate().map(|(part, (index, pick))| {
            self.load_all("%e")
                + &self.load(index, &pick.to_string(), &format!("%b{index}"))
                + &self.statements("%d", &[(index, &format!("%b{index}"))])
                + "\n"
                + &self.store("%d", part, "%e")
        });
        self.entry("mixed", &parts.collect::<String>())
    }

    fn constant(&self, tuples: &[Vec<u64>]) -> String {
        let parts = self.shared(tuples.len(), false).into_iter().enumerate().map(|(part, (index, pick))| {
            let constant = self.src[index].constant(tuples[pick][index]).unwrap_or_default();
            self.load_all("%e")
                + &self.statements("%d", &[(index, &constant)])
                + "\n"
                + &self.store("%d", part, "%e")
        });
        self.entry("constant", &parts.collect::<String>())
    }

    /// Builds the case from this description.
    pub fn case(self) -> Case {
        let mut tuples = tuples(&self.domains, self.extra);
        tuples.extend(self.also.iter().cloned());
        let mut text = HEADER.to_owned() + &self.varying() + &self.masked() + &self.uniform();
        if !self.aliases().is_empty() {
            text += &self.aliased();
        }
        if self.src.len() > 1 {
            text += &self.mixed(tuples.len());
        }
        let constants = !self.shared(tuples.len(), false).is_empty();
        if constants {
            text += &self.constant(&tuples);
        }
        Case {
            name: self.name.clone(),
            covers: vec![self.spelling.clone()],
            text,
            check: Box::new(move |device| self.check(device, &tuples, constants)),
        }
    }

    fn check(&self, device: &mut Device, tuples: &[Vec<u64>], constants: bool) -> Result<(), String> {
        let count = tuples.len();
        let table: Vec<u8> = (0..self.src.len())
            .flat_map(|index| tuples.iter().flat_map(move |tuple| tuple[index].to_le_bytes()))
            .collect();
        let operands = device.upload(&table);
        let run = EntryRun { lanes: self, operands, tuples };
        let whole = Shape::line(count.div_ceil(BLOCK as usize) as u32, BLOCK);
        let expected: Vec<Expect> = tuples.iter().map(|tuple| (self.reference)(tuple)).collect();
        run.entry(device, "varying", whole, 1, |_, entry| (tuples[entry].clone(), expected[entry].clone()))?;
        run.entry(device, "masked", whole, 1, |_, entry| {
            let takes_part = (entry ^ (entry >> 2)) & 1 == 1;
            let kept = Expect::Bits(self.kept());
            (tuples[entry].clone(), if takes_part { expected[entry].clone() } else { kept })
        })?;
        let warp = Shape::line(1, 32);
        run.entry(device, "uniform", warp, 1, |_, entry| (tuples[entry].clone(), expected[entry].clone()))?;
        let aliases = self.aliases().len();
        if aliases > 0 {
            run.entry(device, "aliased", whole, aliases, |_, entry| {
                (tuples[entry].clone(), expected[entry].clone())
            })?;
        }
        for (name, wanted, any) in [("mixed", self.src.len() > 1, true), ("constant", constants, false)] {
            if wanted {
                let shared = self.shared(count, any);
                run.entry(device, name, whole, shared.len(), |part, entry| {
                    let (index, pick) = shared[part];
                    let mut tuple = tuples[entry].clone();
                    tuple[index] = tuples[pick][index];
                    let expect = (self.reference)(&tuple);
                    (tuple, expect)
                })?;
            }
        }
        Ok(())
    }

    fn kept(&self) -> u64 {
        match self.dst {
            OperandKind::Pred => 1,
            kind => KEPT & (u64::MAX >> (64 - 8 * kind.bytes())),
        }
    }
}

/// Operands of a test in device memory, for running its kernels.
struct EntryRun<'a> {
    lanes: &'a Lanes,
    operands: u64,
    tuples: &'a [Vec<u64>],
}

impl EntryRun<'_> {
    /// Launches a kernel that stores `parts` results for each tuple, and compares them with those that
    /// `wanted` returns for a part and a tuple.
    fn entry(
        &self,
        device: &mut Device,
        name: &str,
        shape: Shape,
        parts: usize,
        wanted: impl Fn(usize, usize) -> (Vec<u64>, Expect),
    ) -> Result<(), String> {
        let count = self.tuples.len();
        let results = device.upload(&vec![UNTOUCHED; 8 * count * parts]);
        let params = Params::new().u64(self.operands).u64(results).u32(count as u32);
        device.launch(name, shape, &params)?;
        let bytes = device.read(results, (8 * count * parts) as u64);
        let width = self.lanes.dst.bytes();
        for (slot, bytes) in bytes.chunks_exact(8).enumerate() {
            let mut value = [0; 8];
            value[..width].copy_from_slice(&bytes[..width]);
            let got = u64::from_le_bytes(value);
            let (operands, expect) = wanted(slot / count, slot % count);
            if !expect.allows(got) || bytes[width..].iter().any(|&byte| byte != UNTOUCHED) {
                return Err(format!(
                    "{} ({name}, part {}, thread {}): operands {operands:#x?} give {got:#x}, should be {expect:#x?}",
                    self.lanes.name,
                    slot / count,
                    slot % count,
                ));
            }
        }
        Ok(())
    }
}
