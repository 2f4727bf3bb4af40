//! Version 1 mediators that have no free owner or no context.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use vgpu_testbed::programs;
use vgpu_wire::v1::call::{OWNERS_MAX, Op};
use vgpu_wire::v1::frame::{CUDA_CALL, CUDA_RESULT, Call, Header, MAGIC, Outcome};
use vgpu_wire::v1::owner;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::super::plan::{ScenePlan, When};
use super::super::scene::Scene;

/// `CUDA_ERROR_INVALID_CONTEXT`, which an existing host answers to every client once a kernel's fault has
/// ended the shared context.
const INVALID_CONTEXT: u32 = 201;
/// Number of the machine that a device of version 1 belongs to by default.
const MACHINE: u32 = 0;
/// Limit of a mediator's answer.
const PATIENCE: Duration = Duration::from_mins(2);

/// Gives the scene a device of version 1 whose mediator is started by `serve` at a socket of the scene's own.
pub fn behind(plan: &mut ScenePlan, serve: impl FnOnce(&mut Scene, &Path) -> Result<()> + 'static) {
    // The device connects when it has a call to forward.
    let socket = std::env::temp_dir().join(format!("vgpu-mediator-{:032x}", rand::random::<u128>()));
    plan.version_1(&["--mediator", &socket.display().to_string()]);
    plan.step(When::Served, move |scene| {
        scene.undo.push(format!("rm -f {}", socket.display()));
        serve(scene, &socket)
    });
}

/// Starts a mediator process that listens at `socket`.
pub fn start(scene: &mut Scene, socket: &Path, more: &[&str]) -> Result<()> {
    let mut command = Command::new(programs::testbed()?);
    command.args(["mediator", "--until-stdin-closes", "--socket"]).arg(socket).args(more);
    scene.start_until(&mut command, "ready")
}

/// Starts a mediator all of whose owner slots are taken by other processes of the machine.
pub fn without_room(scene: &mut Scene, socket: &Path) -> Result<()> {
    start(scene, socket, &[])?;
    let mut stream = UnixStream::connect(socket).context("connect to the mediator")?;
    stream.set_read_timeout(Some(PATIENCE))?;
    for token in 1..=OWNERS_MAX as u32 {
        let status = init(&mut stream, 1000 + token)?;
        if status != 0 {
            bail!("owner {token} is answered with {status}");
        }
    }
    scene.connections.push(stream);
    Ok(())
}

/// Registers an owner with the mediator and returns the status of the call.
fn init(stream: &mut UnixStream, token: u32) -> Result<u32> {
    let mut call = Call::new_zeroed();
    (call.magic, call.op, call.owner) =
        (MAGIC.into(), (Op::Init as u32).into(), owner(MACHINE, token).into());
    let head = Header::new(CUDA_CALL, MACHINE, token, size_of::<Call>() as u32);
    stream.write_all(&[head.as_bytes(), call.as_bytes()].concat()).context("send a call")?;
    let mut answer = [0; size_of::<Header>() + size_of::<Outcome>()];
    stream.read_exact(&mut answer).context("read an answer")?;
    match Outcome::read_from_suffix(&answer) {
        Ok((_, outcome)) => Ok(outcome.status.get()),
        Err(_) => bail!("an answer is too short"),
    }
}

/// Starts an imitation of a mediator whose context was ended by a fault: it answers every call with that
/// error and exits with its device, its only client. The test bed's own mediator would create a new context.
pub fn without_context(_: &mut Scene, socket: &Path) -> Result<()> {
    let listener = UnixListener::bind(socket).with_context(|| format!("listen at {}", socket.display()))?;
    let socket: PathBuf = socket.to_owned();
    thread::spawn(move || {
        // The scene removes the socket when it ends. Until then a restarted device still finds it.
        for stream in listener.incoming().map_while(Result::ok) {
            // The device closes the connection when it ends.
            let _ = answer_all(stream);
            if !socket.exists() {
                return;
            }
        }
    });
    Ok(())
}

fn answer_all(mut stream: UnixStream) -> std::io::Result<()> {
    loop {
        let mut head = [0; size_of::<Header>()];
        stream.read_exact(&mut head)?;
        let head = Header::read_from_bytes(&head).map_err(|_| std::io::ErrorKind::InvalidData)?;
        let mut payload = vec![0; head.bytes.get() as usize];
        stream.read_exact(&mut payload)?;
        let Ok((call, _)) = Call::read_from_prefix(&payload) else { continue };
        let mut outcome = Outcome::new_zeroed();
        (outcome.magic, outcome.seq, outcome.status) = (MAGIC.into(), call.seq, INVALID_CONTEXT.into());
        let (machine, number) = (head.vm_id.get(), head.request_id.get());
        let head = Header::new(CUDA_RESULT, machine, number, size_of::<Outcome>() as u32);
        stream.write_all(&[head.as_bytes(), outcome.as_bytes()].concat())?;
    }
}
