//! Hostile clients of a mediator's socket. They send what a patched hypervisor could send, without a virtual
//! machine.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;
use rand::{Rng, RngExt};
use vgpu_wire::v1::call::Op;
use vgpu_wire::v1::frame::{CUDA_CALL, Call, Header, MAGIC, Outcome};
use vgpu_wire::v1::owner;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::tell::{Outcomes, begun};

/// Number of connections that an idle client keeps, above the mediator's limit.
const IDLE: usize = 70;
/// Maximum number of owners that a mediator accepts for all machines.
const OWNERS: u32 = 64;
/// Time limit for an answer. Calls that block forever have no answer.
const ANSWER: Duration = Duration::from_secs(1);
/// Status for a connection that the mediator closed. This and the next one are not CUDA's; the next one
/// stands for a missing answer.
const HUNG_UP: i32 = -1;
const SILENT: i32 = -2;

/// Class of a hostile client, named after its attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SocketClass {
    /// Creates resources for the maximum number of owners, disconnects, and starts again.
    Owners,
    /// Opens as many connections as possible, and sends nothing.
    Idle,
    /// Sends calls with random contents.
    Calls,
}

/// Options of an attack on a mediator's socket.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Class of the attack.
    class: SocketClass,
    /// Path of the mediator's socket.
    #[arg(long)]
    socket: PathBuf,
    /// Number of the virtual machine that the client claims to be.
    #[arg(long)]
    vm: u32,
}

/// Attacks until the program is killed.
///
/// # Errors
///
/// Fails if the output cannot be written.
pub fn attack(options: &Options) -> Result<ExitCode> {
    let mut outcomes = Outcomes::default();
    begun()?;
    match options.class {
        SocketClass::Owners => {
            // Memory once: the device has so much for all, and gives it to who comes first. Of events each
            // owner may have so many.
            owners(options, (Op::MemAlloc, &[1 << 20, 0, 0, 0]), &mut outcomes)?;
            loop {
                owners(options, (Op::EventCreate, &[0]), &mut outcomes)?;
            }
        }
        SocketClass::Idle => idle(&options.socket, &mut outcomes),
        SocketClass::Calls => loop {
            calls(options, &mut outcomes)?;
        },
    }
}

/// Opens a connection. Returns `None` on an error, which is recorded as an outcome.
fn connect(socket: &Path, outcomes: &mut Outcomes) -> Result<Option<UnixStream>> {
    match UnixStream::connect(socket) {
        Ok(stream) => {
            stream.set_read_timeout(Some(ANSWER)).context("set a connection up")?;
            stream.set_write_timeout(Some(ANSWER)).context("set a connection up")?;
            Ok(Some(stream))
        }
        Err(error) => {
            outcomes.note("connect", error.raw_os_error().unwrap_or(HUNG_UP))?;
            Ok(None)
        }
    }
}

/// Sends a call and returns the status of its answer.
fn call(stream: &mut UnixStream, vm: u32, token: u32, op: u32, args: &[u32], data: &[u8]) -> i32 {
    let mut call = Call::new_zeroed();
    call.magic = MAGIC.into();
    call.op = op.into();
    call.owner = owner(vm, token).into();
    call.num_args = (args.len() as u32).into();
    call.data_len = (data.len() as u32).into();
    for (to, from) in call.args.iter_mut().zip(args) {
        *to = (*from).into();
    }
    let bytes = (size_of::<Call>() + data.len()) as u32;
    let frame = [Header::new(CUDA_CALL, vm, token, bytes).as_bytes(), call.as_bytes(), data].concat();
    answer(stream, &frame).unwrap_or_else(|error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => SILENT,
        _ => HUNG_UP,
    })
}

fn answer(stream: &mut UnixStream, frame: &[u8]) -> std::io::Result<i32> {
    stream.write_all(frame)?;
    let mut head = [0; size_of::<Header>()];
    stream.read_exact(&mut head)?;
    let bytes = Header::read_from_bytes(&head).map_or(0, |head| head.bytes.get() as usize);
    let mut payload = vec![0; bytes];
    stream.read_exact(&mut payload)?;
    // A frame without a result turns the machine away.
    Ok(Outcome::read_from_prefix(&payload).map_or(HUNG_UP, |(outcome, _)| outcome.status.get() as i32))
}

fn owners(options: &Options, (op, args): (Op, &[u32]), outcomes: &mut Outcomes) -> Result<()> {
    let Some(mut stream) = connect(&options.socket, outcomes)? else { return Ok(()) };
    for token in 1..=OWNERS {
        let status = call(&mut stream, options.vm, token, op as u32, args, &[]);
        outcomes.note(op.name(), status)?;
        if status < 0 {
            break;
        }
    }
    Ok(())
}

fn idle(socket: &Path, outcomes: &mut Outcomes) -> Result<ExitCode> {
    let mut streams = Vec::new();
    loop {
        if streams.len() < IDLE
            && let Some(stream) = connect(socket, outcomes)?
        {
            outcomes.note("connect", 0)?;
            streams.push(stream);
            continue;
        }
        // Those that the mediator closed are opened again; the read waits where none is.
        let mut byte = [0];
        streams.retain_mut(|stream| match stream.read(&mut byte) {
            Ok(0) => false,
            Ok(_) => true,
            Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        });
    }
}

fn calls(options: &Options, outcomes: &mut Outcomes) -> Result<()> {
    let Some(mut stream) = connect(&options.socket, outcomes)? else { return Ok(()) };
    let mut rng = rand::rng();
    loop {
        let op = match rng.random_range(0..8) {
            0 => rng.random(),
            _ => Op::ALL[rng.random_range(0..Op::ALL.len())] as u32,
        };
        let args: Vec<u32> = (0..rng.random_range(0..=16)).map(|_| word(&mut rng)).collect();
        let mut data = vec![0; rng.random_range(0..512)];
        rng.fill_bytes(&mut data);
        let status = call(&mut stream, options.vm, rng.random_range(0..4), op, &args, &data);
        outcomes.note("call", status)?;
        if status < 0 {
            return Ok(());
        }
    }
}

/// Returns a random word. Zeros and small numbers are frequent, because they are more likely to be valid.
fn word(rng: &mut impl Rng) -> u32 {
    match rng.random_range(0..8) {
        0..4 => 0,
        4..7 => rng.random_range(0..4096),
        _ => rng.random(),
    }
}
