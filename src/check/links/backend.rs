//! Link `backend`: whether the files of Ollama's CUDA backends can work with the libraries and the device,
//! judged without running them.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::Path;

use vgpu_image::ptx;

use crate::check::context::Context;
use crate::check::facts::{Backend, DeviceReport, Fault};
use crate::diagnosis::cause::backend as cause;
use crate::diagnosis::{Cause, Finding, LinkId};
use crate::embedded::OBJECTS;
use crate::env::LD_LIBRARY_PATH;
use crate::ollama::Ollama;
use crate::ollama::backends;
use crate::ollama::fatbin::Architectures;
use crate::ollama::installer;
use crate::ollama::needed::{self, Lacking, Library, Unmet, shown};
use crate::ollama::symbols::Symbols;
use crate::ollama::variant::{BACKEND, Variant};
use crate::program::elf::{self, Elf, ElfError};
use crate::program::private::{self, Asker, SEEN};
use crate::program::search::Search;
use crate::waiting;

const LINK: LinkId = LinkId::Backend;
/// Where nvcc puts device code.
const CODE: &str = ".nv_fatbin";

const REINSTALL: &str = "Install Ollama again; its archive brings the backend.";
const UPDATE: &str = "Update vgpu-run: this backend uses functions that are newer than it.";

/// Examines the link.
pub async fn examine(context: &mut Context) -> Finding {
    let Some(ollama) = context.target().ollama.clone() else {
        return Finding::skip(LINK, "there is no Ollama");
    };
    let all = Variant::all(&ollama.libraries);
    let chosen: Vec<_> = all.iter().filter(|variant| variant.chosen(&context.environment)).cloned().collect();
    if chosen.is_empty() {
        return none(&ollama, &all);
    }
    let inspected: Vec<Backend> =
        chosen.into_iter().map(|variant| inspect(variant, &ollama, context)).collect();
    let finding = judge(&inspected, &context.devices);
    context.backends = inspected;
    finding
}

fn none(ollama: &Ollama, all: &[Variant]) -> Finding {
    if let Some(variant) = all.first() {
        let only = "OLLAMA_LLM_LIBRARY names a folder that does not exist";
        return Finding::fail(cause::BACKEND_MISSING, only)
            .expected(variant.name())
            .fix("Unset it.")
            .command("unset OLLAMA_LLM_LIBRARY");
    }
    let found = format!("{} has no folder with {BACKEND}", ollama.libraries.display());
    Finding::fail(cause::BACKEND_MISSING, found)
        .expected("cuda_v12 or cuda_v13")
        .fix("Install Ollama's own release, or your distribution's package with the CUDA backend (such as ollama-cuda).")
        .command(installer::command())
        .as_root()
}

/// What is said of all of them: one that can work is enough.
fn judge(backends: &[Backend], devices: &[DeviceReport]) -> Finding {
    let name = |backend: &Backend| backend.variant.name();
    let mut details: Vec<String> = backends
        .iter()
        .flat_map(|backend| backend.details.iter().map(move |line| format!("{}: {line}", name(backend))))
        .collect();
    let faults = backends.iter().filter_map(|backend| Some((backend, backend.fault.as_ref()?)));
    details.extend(faults.clone().map(|(backend, fault)| format!("{}: {}", name(backend), fault.words)));
    let good: Vec<_> = backends.iter().filter(|backend| backend.fault.is_none()).collect();
    if let Some(best) = good.first() {
        let cuda = best.major.map(|major| format!(" for CUDA {major}")).unwrap_or_default();
        let runs = best.architectures.iter().flat_map(|found| {
            let here = devices.iter().map(|device| device.capability);
            here.filter(|capability| found.runs_on(*capability)).collect::<BTreeSet<_>>()
        });
        let runs: Vec<String> = runs.map(|(major, minor)| format!("{major}.{minor}")).collect();
        let code =
            if runs.is_empty() { String::new() } else { format!(", has code for {}", runs.join(" and ")) };
        let aside: Vec<_> = faults.map(|(backend, _)| name(backend)).collect();
        let aside =
            if aside.is_empty() { String::new() } else { format!("; {} cannot be used", aside.join(", ")) };
        if let Some(asker) = &best.asker {
            return Finding::warn(cause::PRIVATE_TABLES, format!("{}: {asker}", name(best)))
                .fix(asker.fix())
                .details(details);
        }
        return Finding::pass(LINK, format!("{}{cuda}{code}{aside}", name(best))).details(details);
    }
    // The one that comes furthest says most: those before it are for other devices or not there.
    let rank = |cause: Cause| {
        [
            cause::BACKEND_MISSING,
            cause::BACKEND_UNREADABLE,
            cause::RUNTIME_TOO_NEW,
            cause::NO_ARCHITECTURE,
            cause::PTX_TOO_NEW,
            cause::NEEDED_MISSING,
            cause::PRIVATE_TABLES,
        ]
        .iter()
        .position(|&known| known == cause)
        .unwrap_or(usize::MAX)
    };
    match faults.max_by_key(|(_, fault)| rank(fault.cause)) {
        Some((backend, fault)) => Finding::fail(fault.cause, format!("{}: {}", name(backend), fault.words))
            .fix(fault.fix)
            .details(details),
        None => Finding::unknown(LINK, "no backend was examined"),
    }
}

fn inspect(variant: Variant, ollama: &Ollama, context: &Context) -> Backend {
    let mut backend =
        Backend { variant, major: None, architectures: None, fault: None, asker: None, details: Vec::new() };
    let path = backend.variant.backend();
    let _waits = waiting::on(path.display().to_string());
    let result = read(&path, &mut backend, ollama, context);
    backend.fault = result.err();
    backend
}

fn unreadable(path: &Path, error: &ElfError) -> Fault {
    match error {
        ElfError::Read(_, error) if error.kind() == io::ErrorKind::NotFound => {
            Fault::new(cause::BACKEND_MISSING, format!("there is no {}", path.display()), REINSTALL)
        }
        ElfError::Read(_, source) => Fault::new(
            cause::BACKEND_UNREADABLE,
            format!("{} cannot be read: {source}", path.display()),
            "Make it readable for the user that Ollama runs as.",
        ),
        error => Fault::new(
            cause::BACKEND_UNREADABLE,
            format!("{} is damaged: {error}", path.display()),
            REINSTALL,
        ),
    }
}

fn read(path: &Path, backend: &mut Backend, ollama: &Ollama, context: &Context) -> Result<(), Fault> {
    let damaged = |error: ElfError| unreadable(path, &error);
    let file =
        vgpu_paths::open_regular(path).map_err(|error| unreadable(path, &ElfError::Read("file", error)))?;
    let elf = Elf::read(&file).map_err(damaged)?;
    if !elf.x86_64 {
        return Err(Fault::new(cause::BACKEND_UNREADABLE, "it is not for x86-64", REINSTALL));
    }
    backend.major = elf.needed.iter().find_map(|name| backends::major(name));
    let code = elf::section(&file, CODE).map_err(damaged)?;
    backend.architectures = match code {
        Some(range) => Some(Architectures::read(&file, range).map_err(damaged)?),
        None => None,
    };
    if let Some(found) = &backend.architectures {
        let list = |numbers: &BTreeSet<u32>| numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
        backend.details.push(format!(
            "machine code for sm {}; PTX for {}",
            list(&found.cubin),
            list(&found.ptx)
        ));
    }
    // One device is enough: Ollama drops the others.
    let fits: Vec<Result<(), Fault>> =
        context.devices.iter().map(|device| self::fits(backend, device, &file)).collect();
    if fits.iter().all(Result::is_err) {
        fits.into_iter().next().unwrap_or(Ok(()))?;
    } else {
        let unfit = context.devices.iter().zip(fits).filter_map(|(device, fit)| Some((device, fit.err()?)));
        backend.details.extend(
            unfit.map(|(device, fault)| format!("{} {}: {}", device.address, device.name, fault.words)),
        );
    }
    let environment = backend.variant.environment(ollama, &context.environment);
    let run_path = vec![backend.variant.folder.clone()];
    let search = Search::new(environment.get(LD_LIBRARY_PATH), run_path);
    let shims = context.staged.is_some();
    let ours = OBJECTS.iter().map(|object| object.soname).collect();
    let asked = private::look(vec![path.to_owned()], &search, &ours);
    let own = Asker::Runtime(path.to_owned());
    if asked.askers.contains(&own) {
        backend.details.push(format!("linked in: {SEEN}"));
        return Err(Fault::new(cause::PRIVATE_TABLES, own.to_string(), own.fix()));
    }
    backend.details.extend(asked.askers.iter().map(Asker::to_string));
    backend.asker = asked.askers.into_iter().next();
    let libraries = needed::libraries(&elf.needed, &search, shims).map_err(|unmet| {
        let fix = match unmet {
            Unmet::Damaged { .. } => "Install it again.",
            Unmet::Absent(_) | Unmet::Refused { .. } => "Install what it needs, or Ollama again.",
        };
        Fault::new(cause::NEEDED_MISSING, unmet.to_string(), fix)
    })?;
    backend.details.extend(libraries.iter().filter(|library| library.direct).map(|library| {
        let file = library.file.as_ref();
        let from = file.map(|(path, reason)| format!("{}, {}", path.display(), reason.words()));
        format!("{}: {}", library.soname, from.as_deref().unwrap_or("vgpu-run's"))
    }));
    let own = Symbols::read(&file).map_err(damaged)?;
    imports(&own, &libraries)
}

/// Whether it is for this device.
fn fits(backend: &mut Backend, device: &DeviceReport, file: &File) -> Result<(), Fault> {
    if let Some(major) = backend.major.filter(|major| device.cuda > 0 && device.cuda < major * 1000) {
        let (one, other) = (device.cuda / 1000, device.cuda % 1000 / 10);
        let words = format!("it needs a driver for CUDA {major}.0, and the host's is for {one}.{other}");
        return Err(Fault::new(
            cause::RUNTIME_TOO_NEW,
            words,
            "Update the host's driver, or use the backend for the older CUDA.",
        ));
    }
    let Some(found) = &backend.architectures else { return Ok(()) };
    let (major, minor) = device.capability;
    if !found.runs_on(device.capability) {
        let words = format!("it has no code that runs on compute capability {major}.{minor}");
        let fix = "Use a release of Ollama that was built for this GPU.";
        return Err(Fault::new(cause::NO_ARCHITECTURE, words, fix));
    }
    compiles(found, device, file)?;
    // Ollama's own rule, which its own processes are judged by later.
    if !found.all().contains(&(10 * major + minor)) {
        let line = format!(
            "its code for {major}.{minor} was built for older GPUs, but Ollama requires the exact number"
        );
        backend.details.push(line);
    }
    Ok(())
}

/// Whether the host's driver compiles its code.
fn compiles(code: &Architectures, device: &DeviceReport, file: &File) -> Result<(), Fault> {
    let found = code.ptx_version(file, device.capability).filter(|_| device.cuda > 0);
    let Some(found) = found else { return Ok(()) };
    let newest = ptx::newest(device.cuda);
    if found <= newest {
        return Ok(());
    }
    let words = format!(
        "its code is PTX {}.{}, and the host's driver {} compiles PTX up to {}.{}",
        found.0, found.1, device.driver, newest.0, newest.1
    );
    let fix = "Update the host's driver, or use a release of Ollama that was built with an older CUDA.";
    Err(Fault::new(cause::PTX_TOO_NEW, words, fix))
}

/// Whether everything that the backend asks for is there.
fn imports(own: &Symbols, libraries: &[Library]) -> Result<(), Fault> {
    let given: Vec<&Symbols> = libraries.iter().map(|library| &library.symbols).collect();
    let Lacking { absent, other_node } = needed::lacking(own, &given);
    if let Some((from, names)) = absent.first_key_value() {
        let base = names.iter().all(|import| import.name.starts_with("ggml_"));
        if base {
            let words =
                format!("it asks for {}, which this Ollama's libggml-base does not have", shown(names));
            return Err(Fault::new(
                cause::IMPORT_MISSING,
                words,
                "Its folder has files of two releases: install Ollama again.",
            ));
        }
        let from = if from.is_empty() { "no library".to_owned() } else { format!("not {from}") };
        let words = format!("it asks for {}, which {from} has", shown(names));
        return Err(Fault::new(cause::IMPORT_MISSING, words, UPDATE));
    }
    let Some(first) = other_node.first() else { return Ok(()) };
    let (node, from) = first.version.clone().unwrap_or_default();
    let words =
        format!("it asks for {} under the version {node}, which {from} does not have", shown(&other_node));
    let fix = if node.starts_with("GLIBC") {
        "Use a newer distribution, or a release of Ollama that was built for this one."
    } else {
        UPDATE
    };
    Err(Fault::new(cause::VERSION_NODE, words, fix))
}

/// The backends that can be tried, those that Ollama prefers first.
pub fn usable(context: &Context) -> Vec<(Variant, Option<u32>)> {
    let good = context.backends.iter().filter(|backend| backend.fault.is_none());
    good.map(|backend| (backend.variant.clone(), backend.major)).collect()
}

/// The SONAME of a library of this CUDA major.
pub fn soname(library: &str, major: Option<u32>) -> String {
    format!("{library}.so.{}", major.unwrap_or(12))
}
