//! Link `backend`: checks that the files of Ollama's CUDA backends can work with the libraries and the
//! device, without running them.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::Path;

use vgpu_image::ptx;

use crate::check::context::CheckContext;
use crate::check::facts::{DeviceReport, ExaminedBackend};
use crate::check::links::environment::LLM_LIBRARY;
use crate::check::{rights, words};
use crate::diagnosis::cause::backend as cause;
use crate::diagnosis::fix::backend as fix;
use crate::diagnosis::{Cause, Finding, Fix, LinkId};
use crate::embedded::OBJECTS;
use crate::env::LD_LIBRARY_PATH;
use crate::ollama::Ollama;
use crate::ollama::backends;
use crate::ollama::dependencies::{self, Lacking, NeededLibrary, Unmet, shown};
use crate::ollama::era::Era;
use crate::ollama::fatbin::Architectures;
use crate::ollama::installer;
use crate::ollama::symbols::Symbols;
use crate::ollama::variant::{BACKEND, Variant};
use crate::program::elf::{self, Elf, ElfError};
use crate::program::private::{self, Asker, SEEN};
use crate::program::search::Search;
use crate::waits;

const LINK: LinkId = LinkId::Backend;
/// ELF section in which nvcc puts device code.
const CODE: &str = ".nv_fatbin";

/// Examines the link and returns its finding.
pub async fn examine(context: &mut CheckContext) -> Finding {
    let Some(ollama) = context.target().ollama.clone() else {
        return Finding::skip(LINK, "there is no Ollama");
    };
    let all = Variant::all(&ollama.libraries);
    let chosen: Vec<_> = all.iter().filter(|variant| variant.chosen(&context.environment)).cloned().collect();
    if chosen.is_empty() {
        return none(context, &ollama, &all);
    }
    let inspected: Vec<ExaminedBackend> =
        chosen.into_iter().map(|variant| inspect(variant, &ollama, context)).collect();
    let finding = judge(&inspected, &context.devices).with("install", installer::command());
    context.backends = inspected;
    finding
}

/// Returns the finding for an Ollama without a backend that may be used.
fn none(context: &CheckContext, ollama: &Ollama, all: &[Variant]) -> Finding {
    if let Some(variant) = all.first() {
        let value = context.environment.get(LLM_LIBRARY).unwrap_or_default().display();
        let only = format!("{LLM_LIBRARY}={value}, and {} has no such backend", ollama.libraries.display());
        return Finding::fail(cause::BACKEND_MISSING, only).expected(variant.name()).fix(fix::UNSET);
    }
    let found = format!("no directory in {} has {BACKEND}", ollama.libraries.display());
    Finding::fail(cause::BACKEND_MISSING, found)
        .expected("cuda_v12 or cuda_v13")
        .fix(fix::WITH_CUDA)
        .with("install", installer::command())
}

/// Judges all backends together. One that can work is enough.
fn judge(backends: &[ExaminedBackend], devices: &[DeviceReport]) -> Finding {
    let name = |backend: &ExaminedBackend| backend.variant.name();
    let mut details: Vec<String> = backends
        .iter()
        .flat_map(|backend| backend.details.iter().map(move |line| format!("{}: {line}", name(backend))))
        .collect();
    let faults = backends.iter().filter_map(|backend| Some((backend, backend.fault.as_ref()?)));
    details.extend(faults.clone().map(|(backend, fault)| format!("{}: {}", name(backend), fault.found)));
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
                .fix(asker.remedy())
                .details(details);
        }
        return Finding::pass(LINK, format!("{}{cuda}{code}{aside}", name(best))).details(details);
    }
    // The one that comes furthest says most: those before it are for other devices or not there.
    let rank = |finding: &Finding| {
        let order = [
            cause::BACKEND_MISSING,
            cause::BACKEND_UNREADABLE,
            cause::RUNTIME_TOO_NEW,
            cause::NO_ARCHITECTURE,
            cause::PTX_TOO_NEW,
            cause::NEEDED_MISSING,
            cause::PRIVATE_TABLES,
        ];
        order.iter().position(|&known| finding.cause == Some(known)).unwrap_or(usize::MAX)
    };
    match faults.max_by_key(|(_, fault)| rank(fault)) {
        Some((backend, fault)) => {
            let found = format!("{}: {}", name(backend), fault.found);
            Finding { found, ..(**fault).clone() }.details(details)
        }
        None => Finding::unknown(LINK, "no backend was examined"),
    }
}

fn inspect(variant: Variant, ollama: &Ollama, context: &CheckContext) -> ExaminedBackend {
    let mut backend = ExaminedBackend {
        variant,
        major: None,
        architectures: None,
        fault: None,
        asker: None,
        details: Vec::new(),
    };
    let path = backend.variant.backend();
    let _waits = waits::on(path.display().to_string());
    let loaded = backend.variant.loaded();
    let result = if ollama.era == Era::C && loaded != path && path.exists() && !overridden(context) {
        Err(Box::new(first_by_name(&loaded)))
    } else {
        read(&path, &mut backend, ollama, context)
    };
    backend.fault = result.err();
    backend
}

/// Returns whether a variable names the backend's file in place of Ollama.
fn overridden(context: &CheckContext) -> bool {
    context.environment.get("GGML_BACKEND_PATH").is_some_and(|path| !path.is_empty())
}

/// Returns the finding for another library that llama-server loads in place of the backend.
fn first_by_name(loaded: &Path) -> Finding {
    let found = format!("llama-server loads {}, which sorts before {BACKEND}", loaded.display());
    Finding::fail(cause::SORTS_FIRST, found)
        .expected(format!("{BACKEND} alone"))
        .with("path", loaded.display())
}

fn unreadable(path: &Path, error: &ElfError) -> Box<Finding> {
    Box::new(match error {
        ElfError::Read(_, error) if error.kind() == io::ErrorKind::NotFound => {
            Finding::fail(cause::BACKEND_MISSING, format!("there is no {}", path.display()))
        }
        ElfError::Read(_, source) => {
            let found = format!("{} cannot be read: {source}", path.display());
            let finding = Finding::fail(cause::BACKEND_UNREADABLE, found);
            if source.kind() == io::ErrorKind::PermissionDenied {
                denied(finding, path, &rights::own_rights(path).at)
            } else {
                finding
            }
        }
        error => Finding::fail(cause::BACKEND_UNREADABLE, format!("{} is damaged: {error}", path.display())),
    })
}

/// Returns the finding about a file that may not be read, with the remedy for `at`: the directory on the way
/// to it that may not be searched, or the file itself.
fn denied(finding: Finding, path: &Path, at: &Path) -> Finding {
    if at.is_dir() {
        finding.fix(fix::SEARCHABLE).with("path", at.display())
    } else {
        finding.fix(fix::READABLE).with("path", path.display())
    }
}

/// Returns the error for a backend that cannot work.
fn fault(cause: Cause, found: impl Into<String>) -> Result<(), Box<Finding>> {
    Err(Box::new(Finding::fail(cause, found)))
}

fn read(
    path: &Path,
    backend: &mut ExaminedBackend,
    ollama: &Ollama,
    context: &CheckContext,
) -> Result<(), Box<Finding>> {
    let damaged = |error: ElfError| unreadable(path, &error);
    let file =
        vgpu_paths::open_regular(path).map_err(|error| unreadable(path, &ElfError::Read("file", error)))?;
    let elf = Elf::read(&file).map_err(damaged)?;
    if !elf.x86_64 {
        return fault(cause::BACKEND_UNREADABLE, "it is not for x86-64");
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
    let fits: Vec<Result<(), Box<Finding>>> =
        context.devices.iter().map(|device| self::fits(backend, device, &file)).collect();
    if fits.iter().all(Result::is_err) {
        fits.into_iter().next().unwrap_or(Ok(()))?;
    } else {
        let unfit = context.devices.iter().zip(fits).filter_map(|(device, fit)| Some((device, fit.err()?)));
        backend.details.extend(
            unfit.map(|(device, fault)| format!("{} {}: {}", device.address, device.name, fault.found)),
        );
    }
    let environment = backend.variant.environment(ollama, &context.environment);
    let run_path = vec![backend.variant.folder.clone()];
    let search = Search::new(environment.get(LD_LIBRARY_PATH), run_path);
    let ours = OBJECTS.iter().map(|object| object.soname).collect();
    let asked = private::find_askers(vec![path.to_owned()], &search, &ours);
    let own = Asker::Runtime(path.to_owned());
    if asked.askers.contains(&own) {
        backend.details.push(format!("linked in: {SEEN}"));
        return Err(Box::new(Finding::fail(cause::PRIVATE_TABLES, own.to_string()).fix(own.remedy())));
    }
    backend.details.extend(asked.askers.iter().map(Asker::to_string));
    backend.asker = asked.askers.into_iter().next();
    // Whether vgpu-run's are there, a link of their own tells.
    let libraries = dependencies::libraries(&elf.needed, &search, true).map_err(|unmet| {
        let finding = Finding::fail(cause::NEEDED_MISSING, unmet.to_string());
        let finding = match &unmet {
            Unmet::Damaged { .. } => finding.fix(fix::AGAIN),
            Unmet::Refused { path, .. } => denied(finding, path, &rights::own_rights(path).at),
            Unmet::Absent(_) => finding,
        };
        Box::new(match unmet {
            Unmet::Damaged { path, .. } | Unmet::Refused { path, .. } => {
                words::brought(finding, &path, &context.environment, context.unit.as_ref())
            }
            Unmet::Absent(_) => finding,
        })
    })?;
    backend.details.extend(libraries.iter().filter(|library| library.direct).map(|library| {
        let file = library.file.as_ref();
        let from = file.map(|(path, reason)| format!("{}, {}", path.display(), reason.words()));
        format!("{}: {}", library.soname, from.as_deref().unwrap_or("vgpu-run's"))
    }));
    let own = Symbols::read(&file).map_err(damaged)?;
    imports(&own, &libraries).map_err(|lacking| {
        let (finding, from) = *lacking;
        let given = libraries.iter().find(|library| library.soname == from);
        let Some((file, _)) = given.and_then(|library| library.file.as_ref()) else {
            return Box::new(finding);
        };
        // A library of another build, and not this program's: to update this program would not help.
        let newer = finding.fix == finding.cause.and_then(Cause::remedy).map(Fix::from);
        let finding = Finding { found: format!("{} ({})", finding.found, file.display()), ..finding };
        let finding = if newer { words::unsuitable_file(finding, file, &ollama.libraries) } else { finding };
        Box::new(words::brought(finding, file, &context.environment, context.unit.as_ref()))
    })
}

/// Checks that the backend supports this device.
fn fits(backend: &mut ExaminedBackend, device: &DeviceReport, file: &File) -> Result<(), Box<Finding>> {
    if let Some(major) = backend.major.filter(|major| device.cuda > 0 && device.cuda < major * 1000) {
        let (one, other) = (device.cuda / 1000, device.cuda % 1000 / 10);
        let words = format!("it needs a driver for CUDA {major}.0, and the host's is for {one}.{other}");
        return fault(cause::RUNTIME_TOO_NEW, words);
    }
    let Some(found) = &backend.architectures else { return Ok(()) };
    let (major, minor) = device.capability;
    if !found.runs_on(device.capability) {
        let words = format!("it has no code that runs on compute capability {major}.{minor}");
        return fault(cause::NO_ARCHITECTURE, words);
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

/// Checks that the host's driver can compile the backend's code.
fn compiles(code: &Architectures, device: &DeviceReport, file: &File) -> Result<(), Box<Finding>> {
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
    fault(cause::PTX_TOO_NEW, words)
}

/// Checks that the libraries provide everything that the backend imports.
fn imports(own: &Symbols, libraries: &[NeededLibrary]) -> Result<(), Box<(Finding, String)>> {
    let given: Vec<&Symbols> = libraries.iter().map(|library| &library.symbols).collect();
    let Lacking { absent, other_node } = dependencies::lacking(own, &given);
    if let Some((from, names)) = absent.first_key_value() {
        if names.iter().all(|import| import.name.starts_with("ggml_")) {
            let found =
                format!("it asks for {}, which this Ollama's libggml-base does not have", shown(names));
            let finding = Finding::fail(cause::IMPORT_MISSING, found).fix(fix::TWO_RELEASES);
            return Err(Box::new((finding, from.clone())));
        }
        let lacks = if from.is_empty() { "no library".to_owned() } else { format!("not {from}") };
        let found = format!("it asks for {}, which {lacks} has", shown(names));
        return Err(Box::new((Finding::fail(cause::IMPORT_MISSING, found), from.clone())));
    }
    let Some(first) = other_node.first() else { return Ok(()) };
    let (node, from) = first.version.clone().unwrap_or_default();
    let found =
        format!("it asks for {} under the version {node}, which {from} does not have", shown(&other_node));
    let finding = Finding::fail(cause::VERSION_NODE, found);
    let finding = if node.starts_with("GLIBC") { finding.fix(fix::OLD_SYSTEM) } else { finding };
    Err(Box::new((finding, from)))
}

/// Returns the backends that can be tried, with those that Ollama prefers first.
pub fn usable(context: &CheckContext) -> Vec<(Variant, Option<u32>)> {
    let good = context.backends.iter().filter(|backend| backend.fault.is_none());
    good.map(|backend| (backend.variant.clone(), backend.major)).collect()
}

/// Returns the SONAME of a library with this CUDA major version.
pub fn soname(library: &str, major: Option<u32>) -> String {
    format!("{library}.so.{}", major.unwrap_or(12))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn the_mode_is_changed_of_what_refuses() {
        let scratch = Scratch::new();
        let path = scratch.join("libggml-cuda.so");
        std::fs::write(&path, "").unwrap();
        let command = |finding: Finding| finding.fix.unwrap().command.unwrap();
        let unread = |kind: io::ErrorKind| command(*unreadable(&path, &ElfError::Read("file", kind.into())));
        let file = format!("chmod a+r {}", path.display());
        assert_eq!(unread(io::ErrorKind::PermissionDenied), file);
        assert_eq!(unread(io::ErrorKind::TimedOut), "{install}", "of a file system that fails");
        let finding = || Finding::fail(cause::BACKEND_UNREADABLE, "x");
        assert_eq!(command(denied(finding(), &path, &path)), file);
        let folder = format!("chmod a+x {}", scratch.path().display());
        assert_eq!(command(denied(finding(), &path, scratch.path())), folder);
    }
}
