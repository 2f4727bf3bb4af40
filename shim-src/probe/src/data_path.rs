//! `data-path`: checks that data copied to the device comes back unchanged, and that a kernel, a graph and a
//! matrix product give correct results. The measurements are in [`speed`](crate::speed).

use std::ffi::{CStr, c_void};

use vgpu_probe_steps::{Allocated, Fault, Product};

use crate::blas;
use crate::driver::{Driver, Kernel, Memory, Stream};
use crate::say::Say;
use crate::speed;

const PTX: &CStr = match CStr::from_bytes_with_nul(concat!(include_str!("kernel.ptx"), "\0").as_bytes()) {
    Ok(text) => text,
    Err(_) => panic!("no zero byte inside"),
};
const NAME: &CStr = c"vgpu_probe";
const BLOCK: u32 = 256;
const FACTOR: u32 = 2_654_435_761;
/// Length in bytes of the copied data, longer than any staging buffer and not a multiple of one.
const WORDS: usize = 64 << 10;
/// Longer than any staging area, and not a multiple of one.
const COPY_BYTES: usize = (5 << 20) + 12_345;
const FILL: u32 = 0xa5c3_3c5a;
/// Maximum error of an element. TF32 rounds each factor by up to 2^-11, so a sum of 70 products of factors
/// between -1 and 1 is off by less than this.
const GEMM_TOLERANCE: f64 = 0.07;

/// Runs all steps. A step that does not need a failed one is still run.
pub fn try_data_path(blas: Option<&str>, say: &mut Say) {
    let Some(driver) = say.silent("init", || {
        let driver = Driver::open()?;
        driver.init()?;
        let device =
            *driver.devices()?.first().ok_or_else(|| Fault::wrong("cuDeviceGetCount", "no device"))?;
        driver.enter(device)?;
        Ok(driver)
    }) else {
        return;
    };
    let mut random = Random::new();
    let Some((one, other)) = say.step(|said: &mut Allocated| {
        said.bytes = 2 * COPY_BYTES;
        Ok((driver.allocate(COPY_BYTES)?, driver.allocate(COPY_BYTES)?))
    }) else {
        return;
    };
    say.silent("copy", || copy(&driver, one, other, &mut random));
    say.silent("fill", || fill(&driver, one));
    say.silent("free", || driver.free(one).and_then(|()| driver.free(other)));
    let kernel = say.silent("module", || driver.kernel(PTX, NAME));
    if let Some(kernel) = kernel {
        let data = say.silent("kernel", || {
            let data = Data::new(&driver, &mut random)?;
            data.copy_and_launch(&driver, kernel, Stream::LEGACY)?;
            driver.wait_for_all()?;
            data.compare(&driver, "cuLaunchKernel")?;
            Ok(data)
        });
        if let Some(data) = data {
            say.silent("graph", || graph(&driver, kernel, &data));
        }
    }
    if let Some(soname) = blas {
        say.step(|said: &mut Product| {
            let off = gemm(&driver, soname, &mut random)?;
            said.largest_difference = off;
            if off <= GEMM_TOLERANCE {
                return Ok(());
            }
            Err(Fault::wrong(
                "cublasSgemm_v2",
                format!("a product is off by {off}, with factors between -1 and 1"),
            ))
        });
    }
    speed::measure(&driver, kernel, say);
}

/// Copies random data to the device, and on to another allocation, and reads back both.
fn copy(driver: &Driver, one: Memory, other: Memory, random: &mut Random) -> Result<(), Fault> {
    let sent = random.bytes(COPY_BYTES);
    let mut got = vec![0; COPY_BYTES];
    driver.write(one, &sent)?;
    driver.read(&mut got, one)?;
    compare("cuMemcpyDtoH_v2", &sent, &got)?;
    driver.copy(other, one)?;
    got.fill(0);
    driver.read(&mut got, other)?;
    compare("cuMemcpyDtoD_v2", &sent, &got)
}

fn fill(driver: &Driver, memory: Memory) -> Result<(), Fault> {
    driver.fill(memory, FILL)?;
    let mut got = vec![0; COPY_BYTES / 4 * 4];
    driver.read(&mut got, memory)?;
    let expected = FILL.to_le_bytes().repeat(got.len() / 4);
    compare("cuMemsetD32_v2", &expected, &got)
}

fn compare(call: &str, expected: &[u8], found: &[u8]) -> Result<(), Fault> {
    if expected == found {
        return Ok(());
    }
    let wrong = expected.iter().zip(found).filter(|(expected, found)| expected != found).count();
    match expected.iter().zip(found).position(|(expected, found)| expected != found) {
        None => Ok(()),
        Some(first) => Err(Fault::wrong(
            call,
            format!("{wrong} of {} bytes are wrong, the first at {first}", expected.len()),
        )),
    }
}

/// Device memory of the kernel's data.
struct Data {
    input: Memory,
    output: Memory,
    words: Vec<u32>,
}

impl Data {
    fn new(driver: &Driver, random: &mut Random) -> Result<Self, Fault> {
        let bytes = random.bytes(WORDS * 4);
        let (input, output) = (driver.allocate(WORDS * 4)?, driver.allocate(WORDS * 4)?);
        driver.write(input, &bytes)?;
        driver.fill(output, 0)?;
        let words = bytes
            .chunks_exact(4)
            .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
            .collect();
        Ok(Self { input, output, words })
    }

    fn copy_and_launch(&self, driver: &Driver, kernel: Kernel, stream: Stream) -> Result<(), Fault> {
        let (mut output, mut input, mut factor) = (self.output.address, self.input.address, FACTOR);
        let mut parameters: [*mut c_void; 3] =
            [(&raw mut output).cast(), (&raw mut input).cast(), (&raw mut factor).cast()];
        driver.launch(kernel, WORDS as u32 / BLOCK, BLOCK, stream, &mut parameters)
    }

    fn compare(&self, driver: &Driver, call: &str) -> Result<(), Fault> {
        let mut got = vec![0; WORDS * 4];
        driver.read(&mut got, self.output)?;
        let expected: Vec<u8> =
            (0..WORDS).flat_map(|index| result(&self.words, index).to_le_bytes()).collect();
        compare(call, &expected, &got)
    }
}

/// Returns the word that the kernel writes at `index`.
fn result(words: &[u32], index: usize) -> u32 {
    let mirror = index ^ (BLOCK as usize - 1);
    words[mirror].wrapping_mul(FACTOR).wrapping_add(mirror as u32)
}

/// Captures a graph once and launches it twice. The output is cleared before each launch.
fn graph(driver: &Driver, kernel: Kernel, data: &Data) -> Result<(), Fault> {
    let stream = driver.stream()?;
    let graph = driver.record(stream, || data.copy_and_launch(driver, kernel, stream))?;
    for _ in 0..2 {
        driver.fill(data.output, 0)?;
        driver.wait_for_all()?;
        driver.replay(graph, stream)?;
        driver.wait(stream)?;
        data.compare(driver, "cuGraphLaunch")?;
    }
    Ok(())
}

fn gemm(driver: &Driver, soname: &str, random: &mut Random) -> Result<f64, Fault> {
    let (rows, columns, summands) = blas::SHAPE;
    let mut matrix = |elements: usize| -> Vec<f32> { (0..elements).map(|_| random.unit()).collect() };
    let (a, b) = (matrix(rows * summands), matrix(columns * summands));
    let bytes =
        |matrix: &[f32]| -> Vec<u8> { matrix.iter().flat_map(|element| element.to_le_bytes()).collect() };
    let [on_a, on_b, on_c] = [a.len(), b.len(), rows * columns].map(|elements| driver.allocate(elements * 4));
    let (on_a, on_b, on_c) = (on_a?, on_b?, on_c?);
    driver.write(on_a, &bytes(&a))?;
    driver.write(on_b, &bytes(&b))?;
    driver.fill(on_c, 0)?;
    blas::multiply(driver, soname, on_a, on_b, on_c)?;
    let mut got = vec![0; rows * columns * 4];
    driver.read(&mut got, on_c)?;
    let found: Vec<f32> =
        got.chunks_exact(4).map(|word| f32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect();
    Ok(blas::difference(&found, &blas::expected(&a, &b)))
}

/// Generator of random data that a faulty device cannot return by chance: xorshift64*, seeded with the time.
pub struct Random(u64);

impl Random {
    fn new() -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Self((now.as_nanos() as u64) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count.next_multiple_of(8)];
        for word in bytes.chunks_exact_mut(8) {
            word.copy_from_slice(&self.next().to_le_bytes());
        }
        bytes.truncate(count);
        bytes
    }

    /// Returns a random number between -1 and 1.
    fn unit(&mut self) -> f32 {
        f32::from((self.next() >> 48) as u16) / 32768.0 - 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_counted() {
        assert_eq!(compare("c", &[1, 2, 3], &[1, 2, 3]), Ok(()));
        let fault = compare("c", &[1, 2, 3, 4], &[1, 0, 3, 0]).unwrap_err();
        assert_eq!(fault.error, "2 of 4 bytes are wrong, the first at 1");
    }

    #[test]
    fn the_kernels_mirror_stays_in_its_block() {
        let words: Vec<u32> = (0..512).collect();
        assert_eq!(result(&words, 0), 255_u32.wrapping_mul(FACTOR).wrapping_add(255));
        assert_eq!(result(&words, 256), 511_u32.wrapping_mul(FACTOR).wrapping_add(511));
    }

    #[test]
    fn random_numbers_differ_and_fit() {
        let mut random = Random::new();
        assert_ne!(random.bytes(13), random.bytes(13));
        assert_eq!(random.bytes(13).len(), 13);
        assert!((0..1000).map(|_| random.unit()).all(|value| (-1.0..1.0).contains(&value)));
    }
}
