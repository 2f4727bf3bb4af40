//! Performs a launch from the command line to exec. The checks are ordered by the usefulness of their errors:
//! the user, the program, the device, the libraries. A failed launch leaves nothing behind.

pub mod accounts;
mod exec;
pub mod file_size;
pub mod show;
pub mod user;

use std::convert::Infallible;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;

use nix::unistd::Uid;
use vgpu_transport::PciFunction;

use crate::cli::Options;
use crate::device::{self, DeviceError, Questions};
use crate::env::{CUDA_VISIBLE_DEVICES, Environment, PATH, VGPU_TRACE};
use crate::error::Failure;
use crate::inject::owner::Owner;
use crate::inject::{DeliveryPlan, InjectError, Injection, memfd};
use crate::ollama::{self, Ollama};
use crate::program::Program;
use crate::program::elf::Elf;

/// Replaces this process by `command`, a program and its arguments, with the GPU available.
pub fn launch(options: &Options, command: &[OsString]) -> Result<Infallible, Failure> {
    let mut environment = Environment::inherited();
    let functions = become_user(options, &mut environment)?;
    let program = Program::find(&command[0], environment.get(PATH))?;
    let ready = Ready::new(options, Some(&program), functions, &mut environment, Owner::this());
    // Dropped, and so taken away, only if exec fails.
    let _ready = allow_cpu(options, ready)?;
    Err(exec::exec(&program, command, &environment).into())
}

/// Functions of this guest, prepared for use, or the error, which is reported only if the device is needed.
type Functions = Result<Vec<PciFunction>, DeviceError>;

/// Finds the functions, prepares them as root if possible, and then becomes the user of `--user`.
fn become_user(options: &Options, environment: &mut Environment) -> Result<Functions, Failure> {
    let user = options.user.as_ref().map(user::find).transpose()?;
    let mut functions = device::find();
    if Uid::effective().is_root() {
        functions = functions.and_then(|functions| {
            device::prepare(&functions, user.as_ref().map(|user| user.uid))?;
            Ok(functions)
        });
    }
    if let Some(user) = user {
        user::become_user(&user, environment)?;
    }
    Ok(functions)
}

/// Turns a failure into a warning and `None` if `--allow-cpu` is given.
fn allow_cpu<T>(options: &Options, ready: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match ready {
        Ok(ready) => Ok(Some(ready)),
        Err(failure) if options.allow_cpu => {
            // A warning that cannot be printed must not keep the program from starting.
            let _ = writeln!(
                std::io::stderr(),
                "vgpu-run: warning: {}; going on without the GPU",
                failure.sentence()
            );
            Ok(None)
        }
        Err(failure) => Err(failure),
    }
}

/// Libraries that are delivered to a program, with the plan of their delivery.
struct Ready {
    plan: DeliveryPlan,
    ollama: Option<Ollama>,
    injection: Injection,
}

impl Ready {
    /// Checks that the program can use the GPU and that there is one, delivers the libraries to `owner`, and
    /// adds them to `environment`.
    fn new(
        options: &Options,
        program: Option<&Program>,
        functions: Functions,
        environment: &mut Environment,
        owner: io::Result<Owner>,
    ) -> Result<Self, Failure> {
        let subject: Option<(&Program, Elf)> = match program {
            Some(program) => Some((program, program.preloadable()?)),
            None => None,
        };
        memfd::make_room();
        // The host answers while the libraries are delivered. Its answer takes precedence over an error of
        // the delivery.
        let questions = Questions::ask(&functions?);
        let ready = Self::place(options, program, subject.as_ref(), environment, owner);
        questions.answer(environment.get(CUDA_VISIBLE_DEVICES).is_some())?;
        let ready = ready?;
        ready.injection.apply(environment);
        if let Some(folder) = traced(environment) {
            crate::trace::prepare(&folder, environment, ready.injection.objects());
        }
        tracing::debug!(
            mode = ?ready.injection.mode(),
            folder = ?ready.injection.folder(),
            "libraries are in place"
        );
        Ok(ready)
    }

    /// Plans and performs the delivery of the libraries.
    fn place(
        options: &Options,
        program: Option<&Program>,
        subject: Option<&(&Program, Elf)>,
        environment: &Environment,
        owner: io::Result<Owner>,
    ) -> Result<Self, Failure> {
        let owner = owner.map_err(InjectError::Process)?;
        let ollama = program.and_then(ollama::recognise);
        let majors =
            subject.map(|(program, elf)| ollama::majors(program, elf, ollama.as_ref())).unwrap_or_default();
        let by_path = ollama.as_ref().is_some_and(|ollama| ollama.era.by_path());
        let plan = DeliveryPlan::new(options.via, by_path, &majors);
        let plan = if traced(environment).is_some() { plan.traced() } else { plan };
        tracing::debug!(?ollama, ?majors, mode = ?plan.mode, "planned");
        let injection = Injection::carry_out(&plan, environment, owner)?;
        Ok(Self { plan, ollama, injection })
    }
}

/// Returns the directory of the trace, if the program is traced.
fn traced(environment: &Environment) -> Option<PathBuf> {
    environment.get(VGPU_TRACE).filter(|folder| !folder.is_empty()).map(PathBuf::from)
}
