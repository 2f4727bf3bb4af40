//! `vprintf` and assertions, with arguments in memory as C's variadic functions receive them.

use vgpu_arena::{Element, Window};
use vgpu_ptx::ir::window;

use crate::fault::Fault;
use crate::machine::{Env, Inst, Isa, LANES, MOST_TEXT, Operation, Warp, Words};
use crate::printf::{Star, WIDEST, parse};

/// Maximum size of a format or of a string argument in bytes.
const LONGEST: usize = 64 << 10;

/// Executes `vprintf` for each active lane. `x` is the index of the [`crate::machine::PrintOperands`]. Text
/// beyond the launch's limit is dropped.
pub(crate) struct Print;

impl Operation for Print {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        print(warp, env, inst, pc)
    }
}

fn print(warp: &mut Warp, env: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
    let tables = env.tables;
    let call = &tables.prints[inst.x as usize];
    let mut window = Window::default();
    for lane in (0..LANES).filter(|lane| warp.mask >> lane & 1 != 0) {
        let format = warp.frame.vector::<u64>(call.format)[lane];
        let arguments = warp.frame.vector::<u64>(call.arguments)[lane];
        let mut reader = ThreadMemory { env, warp, lane, line: inst.line, window: &mut window };
        match reader.render(format, arguments) {
            Ok((text, count)) => {
                if env.printed.len() + text.len() <= MOST_TEXT {
                    env.printed.push_str(&text);
                }
                if let Some(dst) = call.dst {
                    warp.frame.vector_mut::<u32>(dst)[lane] = count;
                }
            }
            Err(fault) => return env.fail(warp, fault),
        }
    }
    pc + 1
}

/// Executes `__assertfail`: prints the assertion of the lowest active lane, and ends the launch. `a`, `b` and
/// `d` are the addresses of the condition, the file and the function, and `c` is the line.
pub(crate) struct Assert;

impl Operation for Assert {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, inst: &Inst, _: u32) -> u32 {
        let lane = warp.mask.trailing_zeros() as usize % LANES;
        let site = env.site(warp, inst.line, 1 << lane);
        let [message, file, function] = [inst.a, inst.b, inst.d].map(|at| warp.frame.vector::<u64>(at)[lane]);
        let line = warp.frame.vector::<u32>(inst.c)[lane];
        let mut window = Window::default();
        let mut reader = ThreadMemory { env, warp, lane, line: inst.line, window: &mut window };
        let texts = [file, function, message].map(|address| reader.string(address));
        let fault = match texts {
            [Ok(file), Ok(function), Ok(message)] => {
                let [file, function, message] =
                    [&file, &function, &message].map(|text| String::from_utf8_lossy(text));
                let ([bx, by, bz], [tx, ty, tz]) = (site.block, site.thread);
                let text = format!(
                    "{file}:{line}: {function}: block: [{bx},{by},{bz}], thread: [{tx},{ty},{tz}] Assertion `{message}` failed.\n"
                );
                if env.printed.len() + text.len() <= MOST_TEXT {
                    env.printed.push_str(&text);
                }
                Fault::Assert { site }
            }
            [Err(fault), ..] | [_, Err(fault), _] | [.., Err(fault)] => fault,
        };
        env.fail(warp, fault)
    }
}

/// Memory as one thread sees it, accessed by generic addresses.
struct ThreadMemory<'a, 'e> {
    env: &'a mut Env<'e>,
    warp: &'a Warp,
    lane: usize,
    line: u32,
    window: &'a mut Window,
}

impl ThreadMemory<'_, '_> {
    /// Reads an element at a generic address, or returns the fault of the access.
    fn read<T: Element>(&mut self, address: u64) -> Result<T, Fault> {
        let site = self.env.site(self.warp, self.line, 1 << self.lane);
        let near = address as u32;
        let fits = |bytes: u32| u64::from(near) + T::BYTES <= u64::from(bytes);
        if !address.is_multiple_of(T::BYTES) {
            return Err(Fault::Misaligned { address, site });
        }
        match address & !(window::BYTES - 1) {
            window::SHARED if fits(self.env.shared.bytes) => Ok(self.env.shared.read(near)),
            window::SHARED => Err(Fault::SharedOutOfBounds { address: near.into(), site }),
            window::LOCAL => {
                let local = &mut self.env.local[self.warp.index as usize];
                if fits(local.bytes) {
                    Ok(local.lane(self.lane).read(near))
                } else {
                    Err(Fault::LocalOutOfBounds { address: near.into(), site })
                }
            }
            _ => self.env.view.load_uniform(self.window, address).map_err(|_| Fault::Illegal {
                address,
                write: false,
                site,
            }),
        }
    }

    /// Reads a string that ends with a zero byte, at a generic address. Bytes beyond [`LONGEST`] are dropped.
    fn string(&mut self, address: u64) -> Result<Vec<u8>, Fault> {
        let mut text = Vec::new();
        while text.len() < LONGEST {
            match self.read::<u8>(address.wrapping_add(text.len() as u64))? {
                0 => break,
                byte => text.push(byte),
            }
        }
        Ok(text)
    }

    /// Reads the next argument, and advances `at` past it.
    fn argument<T: Element>(&mut self, at: &mut u64) -> Result<T, Fault> {
        let address = at.next_multiple_of(T::BYTES);
        *at = address.wrapping_add(T::BYTES);
        self.read(address)
    }

    /// Renders a format with its arguments. Returns the text and the number of arguments.
    fn render(&mut self, format: u64, arguments: u64) -> Result<(String, u32), Fault> {
        let format = self.string(format)?;
        let mut out: Vec<u8> = Vec::new();
        let (mut at, mut count) = (arguments, 0);
        let mut rest = format.as_slice();
        while let Some((&byte, after)) = rest.split_first() {
            // A longer text is dropped whole; the arguments that follow would only be counted.
            if out.len() > MOST_TEXT {
                break;
            }
            rest = after;
            if byte != b'%' {
                out.push(byte);
                continue;
            }
            let (mut conversion, stars, after) = parse(rest);
            rest = after;
            if conversion.letter == b'%' {
                out.push(b'%');
                continue;
            }
            for star in stars.into_iter().flatten() {
                let value = self.argument::<u32>(&mut at)?.cast_signed();
                count += 1;
                match star {
                    Star::Width => {
                        conversion.left |= value < 0;
                        conversion.width = Some((value.unsigned_abs() as usize).min(WIDEST));
                    }
                    Star::Precision => {
                        conversion.precision = usize::try_from(value).ok().map(|value| value.min(WIDEST));
                    }
                }
            }
            count += 1;
            match conversion.letter {
                b'd' | b'i' | b'u' | b'x' | b'X' | b'o' => {
                    let bits = if conversion.bytes == 8 {
                        self.argument::<u64>(&mut at)?
                    } else {
                        u64::from(self.argument::<u32>(&mut at)?)
                    };
                    out.extend(conversion.integer(bits).into_bytes());
                }
                b'c' => {
                    let byte = self.argument::<u32>(&mut at)? as u8;
                    out.extend(conversion.pad(vec![byte], 0, false));
                }
                b's' => {
                    let address = self.argument::<u64>(&mut at)?;
                    let mut text = self.string(address)?;
                    text.truncate(conversion.precision.unwrap_or(usize::MAX));
                    out.extend(conversion.pad(text, 0, false));
                }
                b'p' => {
                    let address = self.argument::<u64>(&mut at)?;
                    out.extend(conversion.pad(format!("{address:#x}").into_bytes(), 0, false));
                }
                b'f' | b'F' | b'e' | b'E' | b'g' | b'G' | b'a' | b'A' => {
                    let value = f64::from_bits(self.argument::<u64>(&mut at)?);
                    out.extend(conversion.float(value));
                }
                // Text that is not a conversion is printed as it is.
                _ => {
                    count -= 1;
                    out.push(b'%');
                    rest = &format[format.len() - rest.len() - usize::from(conversion.letter != 0)..];
                }
            }
        }
        Ok((String::from_utf8_lossy(&out).into_owned(), count))
    }
}
