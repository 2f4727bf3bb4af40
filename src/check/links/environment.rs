//! Link `environment`: variables that keep Ollama off the device, though nothing is broken.

use std::path::Path;

use crate::check::context::Context;
use crate::check::messages::Facts;
use crate::diagnosis::cause::environment as cause;
use crate::diagnosis::{Cause, Finding, Fix, LinkId};
use crate::env::{CUDA_VISIBLE_DEVICES, Environment};
use crate::ollama::Ollama;

const LINK: LinkId = LinkId::Environment;
/// Limits Ollama to one folder of backends.
const LLM_LIBRARY: &str = "OLLAMA_LLM_LIBRARY";
/// The one backend that llama-server loads.
const BACKEND_PATH: &str = "GGML_BACKEND_PATH";
/// How many layers llama-server puts onto the device.
const LAYERS: [&str; 3] = ["LLAMA_ARG_N_GPU_LAYERS", "OLLAMA_NUM_GPU", "LLAMA_ARG_DEVICE"];

/// Examines the link.
pub async fn examine(context: &mut Context) -> Finding {
    let devices: Vec<String> =
        context.looks.iter().filter_map(|looked| Some(looked.steps.said::<Facts>()?.uuid)).collect();
    let count = context.functions.len().max(devices.len());
    let environment = context.environment.clone();
    let unit = context.unit.as_ref().map(|unit| unit.name.clone());
    let ollama = context.target().ollama.as_ref();
    judge(&environment, &devices, count, ollama, unit.as_deref())
}

fn judge(
    environment: &Environment,
    devices: &[String],
    count: usize,
    ollama: Option<&Ollama>,
    unit: Option<&str>,
) -> Finding {
    let get = |name: &str| environment.get(name).map(|value| value.to_string_lossy().into_owned());
    let fail = |cause: Cause, name: &str, value: &str, why: &str| {
        let fix = match unit {
            Some(unit) => Fix::new(format!("Remove {name} from the service's environment, and restart it."))
                .command(format!("systemctl edit {unit}"))
                .as_root(),
            None => Fix::new(format!("Unset {name}.")).command(format!("unset {name}")),
        };
        let finding = Finding::fail(cause, format!("{name}={value} {why}"));
        Finding { fix: Some(fix), ..finding }
    };
    let mut seen = Vec::new();
    if let Some(value) = get(CUDA_VISIBLE_DEVICES) {
        if let Some(why) = hidden(&value, devices, count) {
            return fail(cause::VISIBLE_DEVICES, CUDA_VISIBLE_DEVICES, &value, &why)
                .details(devices.iter().enumerate().map(|(index, uuid)| format!("device {index}: {uuid}")));
        }
        seen.push(format!("{CUDA_VISIBLE_DEVICES}={value}"));
    }
    if let Some(value) = get(LLM_LIBRARY).filter(|value| !value.is_empty()) {
        let folder = ollama.map(|ollama| ollama.libraries.join(&value));
        let backend = folder.as_ref().is_some_and(|folder| folder.join("libggml-cuda.so").exists());
        if !value.starts_with("cuda") {
            return fail(
                cause::LIBRARY_OVERRIDE,
                LLM_LIBRARY,
                &value,
                "limits Ollama to a backend that is not CUDA's",
            );
        }
        if let Some(folder) = folder.filter(|_| !backend) {
            return fail(
                cause::LIBRARY_OVERRIDE,
                LLM_LIBRARY,
                &value,
                "names a backend that is not installed",
            )
            .detail(format!("{} has no libggml-cuda.so", folder.display()));
        }
        seen.push(format!("{LLM_LIBRARY}={value}"));
    }
    if let Some(value) = get(BACKEND_PATH).filter(|value| !value.is_empty()) {
        let path = Path::new(&value);
        if !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libggml-cuda.so")) {
            return fail(
                cause::BACKEND_OVERRIDE,
                BACKEND_PATH,
                &value,
                "makes llama-server load that file instead of the CUDA backend",
            );
        }
        if !path.exists() {
            return fail(cause::BACKEND_OVERRIDE, BACKEND_PATH, &value, "names a file that does not exist");
        }
        seen.push(format!("{BACKEND_PATH}={value}"));
    }
    for name in LAYERS {
        let Some(value) = get(name) else { continue };
        if value.trim() == "0" && name != LAYERS[2] || value.trim() == "none" {
            return fail(cause::NUM_GPU_ZERO, name, &value, "keeps all layers on the CPU");
        }
        seen.push(format!("{name}={value}"));
    }
    let found = if seen.is_empty() { "nothing keeps Ollama off the device".into() } else { seen.join(", ") };
    Finding::pass(LINK, found)
}

/// Why a value of `CUDA_VISIBLE_DEVICES` leaves no device: CUDA reads names until the first that is none.
fn hidden(value: &str, devices: &[String], count: usize) -> Option<String> {
    let first = value.split(',').next().unwrap_or_default().trim();
    if first.is_empty() {
        return Some("hides every device".into());
    }
    if let Ok(index) = first.parse::<i64>() {
        return match usize::try_from(index) {
            Err(_) => Some("hides every device".into()),
            // Without a device at all another link is broken.
            Ok(index) if count > 0 && index >= count => {
                Some(format!("names a device that does not exist: there are {count}"))
            }
            Ok(_) => None,
        };
    }
    let known = !devices.is_empty() && devices.iter().all(|uuid| !uuid.is_empty());
    let matches = |uuid: &String| uuid.to_ascii_lowercase().starts_with(&first.to_ascii_lowercase());
    (known && !devices.iter().any(matches)).then(|| "names a device that does not exist".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ollama::era::Era;
    use crate::scratch::Scratch;

    fn issue(entries: &[(&str, &str)], ollama: Option<&Ollama>) -> Option<String> {
        let environment: Environment = entries.iter().copied().collect();
        judge(&environment, &["GPU-1234abcd-x".into()], 1, ollama, None).issue()
    }

    #[test]
    fn devices_that_are_hidden() {
        for value in ["-1", "", "7", "GPU-9999", "-1,0", "MIG-1"] {
            assert_eq!(
                issue(&[("CUDA_VISIBLE_DEVICES", value)], None).unwrap(),
                "environment/visible-devices",
                "{value}"
            );
        }
        for value in ["0", "GPU-1234", "gpu-1234ABCD-x", "0,7", " 0"] {
            assert_eq!(issue(&[("CUDA_VISIBLE_DEVICES", value)], None), None, "{value}");
        }
        assert_eq!(hidden("3", &[], 0), None, "what devices there are is not known");
    }

    #[test]
    fn backends_and_layers() {
        let scratch = Scratch::new();
        std::fs::create_dir_all(scratch.join("cuda_v12")).unwrap();
        std::fs::write(scratch.join("cuda_v12/libggml-cuda.so"), "").unwrap();
        let ollama = Ollama { era: Era::C, libraries: scratch.path().to_owned() };
        let with = |name: &str, value: &str| issue(&[(name, value)], Some(&ollama));
        assert_eq!(with("OLLAMA_LLM_LIBRARY", "cuda_v12"), None);
        assert_eq!(with("OLLAMA_LLM_LIBRARY", "cuda_v11").unwrap(), "environment/library-override");
        assert_eq!(with("OLLAMA_LLM_LIBRARY", "vulkan").unwrap(), "environment/library-override");
        let backend = scratch.join("cuda_v12/libggml-cuda.so").display().to_string();
        assert_eq!(with("GGML_BACKEND_PATH", &backend), None);
        assert_eq!(with("GGML_BACKEND_PATH", "/x/libggml-cpu.so").unwrap(), "environment/backend-override");
        assert_eq!(with("LLAMA_ARG_N_GPU_LAYERS", "0").unwrap(), "environment/num-gpu-zero");
        assert_eq!(with("LLAMA_ARG_N_GPU_LAYERS", "99"), None);
    }

    #[test]
    fn the_fix_is_the_services_where_it_is_the_services() {
        let environment = Environment::from_iter([("CUDA_VISIBLE_DEVICES", "-1")]);
        let finding = judge(&environment, &[], 1, None, Some("ollama.service"));
        assert_eq!(finding.fix.unwrap().command.unwrap(), "systemctl edit ollama.service");
    }
}
