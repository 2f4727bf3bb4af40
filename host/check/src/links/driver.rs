//! Links of NVIDIA's libraries: the driver's, and cuBLAS.

use std::path::PathBuf;

use crate::catalogue::{Finding, LinkId, cause};
use crate::nvidia::answers::{Asked, Said};
use crate::nvidia::ask::{Question, ask};
use crate::subject::{HostFacts, Subject};

/// Status `CUDA_ERROR_SYSTEM_DRIVER_MISMATCH` of the driver.
const CUDA_MISMATCH: u32 = 803;
/// Status `NVML_ERROR_LIB_RM_VERSION_MISMATCH` of NVML.
const NVML_MISMATCH: u32 = 18;
/// Oldest supported version from `cuDriverGetVersion`, CUDA 12.0.
const OLDEST: u32 = 12_000;

/// Examines the driver: both libraries load and start, and are new enough.
pub async fn driver(subject: &Subject, known: &mut HostFacts) -> Finding {
    let cuda =
        match ask(&subject.asker, &Question::Cuda(subject.libcuda.clone()), subject.library_limit).await {
            Ok(asked) => asked,
            Err(error) => return Finding::unknown(LinkId::Driver, error),
        };
    let module = subject.root.module_version();
    if let Some(finding) = failed("libcuda", &cuda, module.as_deref()) {
        return finding;
    }
    let nvml = match ask(&subject.asker, &Question::Nvml(subject.libnvidia_ml.clone()), subject.library_limit)
        .await
    {
        Ok(asked) => asked,
        Err(error) => return Finding::unknown(LinkId::Driver, error),
    };
    if let Some(finding) = failed("libnvidia-ml", &nvml, module.as_deref()) {
        return finding;
    }
    known.cuda = cuda.cuda();
    known.driver = nvml.driver().map(str::to_owned);
    known.gpus = nvml.gpus().cloned().collect();
    let Some(version) = known.cuda else {
        return Finding::unknown(LinkId::Driver, "the driver does not say its version");
    };
    let driver = known.driver.as_deref().unwrap_or("unknown");
    let found = format!("{driver}, CUDA {}.{}", version / 1000, version % 1000 / 10);
    if version < OLDEST {
        return Finding::fail(cause::driver::TOO_OLD, format!("the driver is {found}"))
            .expected("CUDA 12.0 or later, which drivers have from 525 on");
    }
    let finding = Finding::pass(LinkId::Driver, found);
    match module {
        Some(module) => finding.detail(format!("kernel module {module}")),
        None => finding.detail(
            "no kernel module: neither /sys/module/nvidia/version nor /proc/driver/nvidia/version is there",
        ),
    }
}

/// Returns the finding for a library of the driver that could not be used.
fn failed(name: &str, asked: &Asked, module: Option<&str>) -> Option<Finding> {
    if let Some(trouble) = &asked.trouble {
        let cause = if trouble.hung { cause::driver::DOES_NOT_ANSWER } else { cause::driver::CRASHED };
        return Some(Finding::fail(cause, format!("a process that asked {name} {}", trouble.words)));
    }
    let finding = match asked.failure()? {
        Said::Unloadable { library, error } => {
            Finding::fail(cause::driver::LIBRARY_MISSING, format!("{library} cannot be loaded"))
                .detail(error.clone())
        }
        Said::Refused { function, code: None } => {
            Finding::fail(cause::driver::TOO_OLD, format!("{name} has no {function}"))
        }
        Said::Refused { function, code: Some(code) } => {
            let refused = format!("{function} returned {code}");
            let mismatch = if name == "libcuda" { CUDA_MISMATCH } else { NVML_MISMATCH };
            match module {
                _ if *code == mismatch => Finding::fail(
                    cause::driver::VERSION_MISMATCH,
                    "library and kernel module are of different versions",
                )
                .detail(refused),
                None => Finding::fail(cause::driver::MODULE_MISSING, "NVIDIA's kernel module is not loaded")
                    .detail(refused),
                Some(_) => {
                    Finding::fail(cause::driver::INIT_FAILED, format!("the driver does not start: {refused}"))
                }
            }
        }
        _ => return None,
    };
    Some(match module {
        Some(module) => finding.detail(format!("kernel module {module}")),
        None => finding,
    })
}

/// Examines whether a cuBLAS library can be loaded.
pub async fn cublas(subject: &Subject, _known: &mut HostFacts) -> Finding {
    let mut details = Vec::new();
    let mut there: Option<PathBuf> = None;
    for library in &subject.libcublas {
        let asked = match ask(&subject.asker, &Question::Loads(library.clone()), subject.library_limit).await
        {
            Ok(asked) => asked,
            Err(error) => return Finding::unknown(LinkId::Cublas, error),
        };
        match (&asked.trouble, asked.failure()) {
            (None, None) => {
                return Finding::pass(LinkId::Cublas, library.display().to_string()).details(details);
            }
            (Some(trouble), _) => {
                details.push(format!("{}: the process {}", library.display(), trouble.words));
            }
            (None, Some(Said::Unloadable { error, .. })) => {
                details.push(error.clone());
                // A library that lacks another library is itself present.
                let missing = error.starts_with(&format!("{}: cannot open shared object", library.display()));
                there = there.or((!missing).then(|| library.clone()));
                continue;
            }
            (None, Some(_)) => details.push(format!("{} is no cuBLAS", library.display())),
        }
        there = there.or(Some(library.clone()));
    }
    if let Some(library) = there {
        let found = format!("{} cannot be used", library.display());
        return Finding::fail(cause::cublas::UNLOADABLE, found).details(details);
    }
    let names: Vec<_> = subject.libcublas.iter().map(|path| path.display().to_string()).collect();
    let found = format!("there is no {}", names.join(", nor "));
    Finding::fail(cause::cublas::LIBRARY_MISSING, found).details(details)
}
