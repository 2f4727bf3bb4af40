//! Link `environment`: variables that keep Ollama from using the device although no other link is broken.

use std::path::{Path, PathBuf};

use crate::check::context::CheckContext;
use crate::check::messages::Facts;
use crate::check::rights;
use crate::check::unit::Unit;
use crate::diagnosis::cause::environment as cause;
use crate::diagnosis::fix::environment as fix;
use crate::diagnosis::{Cause, Finding, LinkId, Status};
use crate::env::{CUDA_VISIBLE_DEVICES, Environment, LD_DEBUG};
use crate::ollama::Ollama;
use crate::ollama::era::Era;
use crate::ollama::variable::var;
use crate::ollama::variant::Variant;
use crate::program::{elf, texts};

const LINK: LinkId = LinkId::Environment;
/// Variable that limits Ollama to one backend directory. Era A ignores it unless the directory exists.
pub const LLM_LIBRARY: &str = "OLLAMA_LLM_LIBRARY";
/// Variable with the only backend that llama-server loads. Other eras load it in addition to their own.
const BACKEND_PATH: &str = "GGML_BACKEND_PATH";
/// Variable with the number of layers that llama-server puts on the device.
pub const LAYERS: &str = "LLAMA_ARG_N_GPU_LAYERS";
/// Variable with the devices that llama-server uses.
const DEVICE: &str = "LLAMA_ARG_DEVICE";
/// Variables with a key that llama-server then wants of each client, or with the file of one.
const API_KEYS: [&str; 2] = ["LLAMA_API_KEY", "LLAMA_ARG_API_KEY_FILE"];
/// Variables with the files of llama-server's key and certificate.
const TLS: [&str; 2] = ["LLAMA_ARG_SSL_KEY_FILE", "LLAMA_ARG_SSL_CERT_FILE"];
/// Variable with the path prefix under which llama-server answers.
pub const API_PREFIX: &str = "LLAMA_ARG_API_PREFIX";
/// Variable with the number of tokens that one request may have, which llama-server applies to whatever
/// context Ollama asks for. Zero and less mean that it is not set.
const PER_SLOT: &str = "LLAMA_ARG_KV_UNIFIED_PER_SLOT";
/// Tokens of context that Ollama asks for by default on the smallest devices.
const SMALLEST: i64 = 4096;
/// Variable with the way in which llama-server splits a model among devices.
const SPLIT_MODE: &str = "LLAMA_ARG_SPLIT_MODE";
/// Name by which llama-server asks a backend for the function that makes buffers which are split by rows.
const BY_ROWS: &[u8] = b"ggml_backend_split_buffer_type";
/// Variable that makes GGML request managed memory, whatever its value (ggml-cuda.cu, `getenv`). GGML does
/// not fall back to other memory.
const UNIFIED_MEMORY: &str = "GGML_CUDA_ENABLE_UNIFIED_MEMORY";

/// Examines the link and returns its finding.
pub async fn examine(context: &mut CheckContext) -> Finding {
    let (devices, count) = devices(context);
    let environment = context.environment.clone();
    let unit = context.unit.as_ref().map(|unit| unit.name.clone());
    let ollama = context.target().ollama.as_ref();
    let finding = judge(&environment, &devices, count, ollama, unit.as_deref());
    let unread = context.unit.as_ref().map(Unit::unread).unwrap_or_default();
    match unread.first().filter(|_| finding.holds()) {
        Some((path, error)) => {
            let found = format!("{}; what the unit sets in {path} is not known: {error}", finding.found);
            Finding { found, ..Finding::notice(LINK, "") }.fix(fix::AS_ROOT).details(finding.details)
        }
        None => finding,
    }
}

/// Returns the UUIDs of the opened devices, and the number of devices.
fn devices(context: &CheckContext) -> (Vec<String>, usize) {
    let facts = context.opened.iter().filter_map(|opened| opened.steps.said::<Facts>());
    let devices: Vec<String> = facts.map(|facts| facts.uuid).collect();
    let count = context.functions.len().max(devices.len());
    (devices, count)
}

/// Returns whether CUDA_VISIBLE_DEVICES hides all devices. Programs that find no device are then not reported
/// as another fault.
pub fn hides_all(context: &CheckContext) -> bool {
    let (devices, count) = devices(context);
    let value = context.environment.get(CUDA_VISIBLE_DEVICES).map(|value| value.to_string_lossy());
    value.is_some_and(|value| hidden(&value, &devices, count).is_some())
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
        let finding = Finding::fail(cause, format!("{name}={value} {why}"));
        let finding = match unit {
            Some(unit) => finding.fix(fix::IN_UNIT).with("unit", unit),
            None => finding,
        };
        finding.with("variable", name)
    };
    let mut seen = Vec::new();
    if let Some(value) = get(CUDA_VISIBLE_DEVICES) {
        if let Some(why) = hidden(&value, devices, count) {
            return fail(cause::VISIBLE_DEVICES, CUDA_VISIBLE_DEVICES, &value, &why)
                .details(devices.iter().enumerate().map(|(index, uuid)| format!("device {index}: {uuid}")));
        }
        seen.push(format!("{CUDA_VISIBLE_DEVICES}={value}"));
    }
    let era = ollama.map(|ollama| ollama.era);
    if let Some(value) = var(environment, LLM_LIBRARY).map(|value| value.to_string_lossy().into_owned()) {
        let folder = ollama.map(|ollama| ollama.libraries.join(&value));
        // One that cannot be looked at is the link backend's.
        let heeded = era != Some(Era::A) || folder.as_ref().is_some_and(|folder| !rights::missing(folder));
        let backend = folder.as_ref().is_some_and(|folder| !rights::missing(&folder.join("libggml-cuda.so")));
        if heeded && !value.starts_with("cuda") {
            return fail(
                cause::LIBRARY_OVERRIDE,
                LLM_LIBRARY,
                &value,
                "limits Ollama to a backend that is not CUDA's",
            );
        }
        if let Some(folder) = folder.filter(|_| heeded && !backend) {
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
    let llama_server = era.is_none_or(|era| era == Era::C);
    if let Some(value) = get(BACKEND_PATH).filter(|value| llama_server && !value.is_empty()) {
        let path = Path::new(&value);
        if !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libggml-cuda.so")) {
            return fail(
                cause::BACKEND_OVERRIDE,
                BACKEND_PATH,
                &value,
                "makes llama-server load that file instead of the CUDA backend",
            );
        }
        if rights::missing(path) {
            return fail(cause::BACKEND_OVERRIDE, BACKEND_PATH, &value, "names a file that does not exist");
        }
        seen.push(format!("{BACKEND_PATH}={value}"));
    }
    for (name, none) in [(LAYERS, "0"), (DEVICE, "none")] {
        let Some(value) = get(name).filter(|_| llama_server) else { continue };
        if value.trim() == none {
            return fail(cause::NUM_GPU_ZERO, name, &value, "keeps all layers on the CPU");
        }
        seen.push(format!("{name}={value}"));
    }
    if let Some(value) = get(API_PREFIX).filter(|value| llama_server && !value.is_empty()) {
        let why = format!("makes llama-server answer at {value}/health, and Ollama asks at /health");
        return fail(cause::API_PREFIX, API_PREFIX, &value, &why)
            .detail("a model that is loaded is taken for one that is not, until OLLAMA_LOAD_TIMEOUT (5 minutes) has passed");
    }
    for name in API_KEYS {
        if get(name).is_some_and(|value| llama_server && !value.is_empty()) {
            let why = "makes llama-server answer only clients that send the key, and Ollama sends none";
            // The value is a secret, or names one.
            return fail(cause::API_KEY, name, "...", why);
        }
    }
    if let [Some(key), Some(certificate)] = TLS.map(get)
        && llama_server
        && !key.is_empty()
        && !certificate.is_empty()
    {
        let why = "makes llama-server speak HTTPS, and Ollama asks it over HTTP";
        return fail(cause::TLS, TLS[0], &key, why).detail(format!("{}={certificate}", TLS[1]));
    }
    if let Some((name, value, why)) = model_lacking(environment).filter(|_| llama_server) {
        return fail(cause::MODEL_FILE, name, &value, why);
    }
    let tokens = get(PER_SLOT).and_then(|value| value.trim().parse::<i64>().ok());
    if tokens.is_some_and(|tokens| llama_server && tokens == 1) {
        let why = "leaves no token for an answer, and llama-server refuses every prompt";
        return fail(cause::CONTEXT_TOO_SMALL, PER_SLOT, "1", why);
    }
    let by_rows = get(SPLIT_MODE).filter(|value| llama_server && value.trim() == "row");
    if let Some(value) = by_rows.filter(|_| ollama.is_some_and(|ollama| !may_split_rows(ollama))) {
        let why = "asks for buffers that are split by rows, which this Ollama's CUDA backend does not have";
        return fail(cause::SPLIT_MODE, SPLIT_MODE, &value, why);
    }
    if let Some(value) = get(UNIFIED_MEMORY) {
        let why = "makes every model ask for managed memory, which the device does not have";
        return fail(cause::UNIFIED_MEMORY, UNIFIED_MEMORY, &value, why)
            .detail("it counts whatever its value is, also if that is 0");
    }
    if let Some(tokens) = tokens.filter(|tokens| llama_server && (1..SMALLEST).contains(tokens)) {
        let why = "gives each request so many tokens at most, fewer than Ollama asks for by default";
        let finding = fail(cause::CONTEXT_TOO_SMALL, PER_SLOT, &tokens.to_string(), why);
        return Finding { status: Status::Warn, ..finding }.details(seen);
    }
    if let Some(value) = get(LD_DEBUG).filter(|value| !value.is_empty()) {
        let finding =
            fail(cause::LOADER_DEBUG, LD_DEBUG, &value, "makes every process write what its loader does");
        return Finding { status: Status::Warn, ..finding }
            .detail("what check starts runs without it, Ollama's server too")
            .details(seen);
    }
    let found = if seen.is_empty() { "nothing keeps Ollama off the device".into() } else { seen.join(", ") };
    Finding::pass(LINK, found)
}

/// Returns whether a CUDA backend may have buffers that are split by rows: it then has the name of the
/// function that makes them. Without a backend that can be read nothing is known.
fn may_split_rows(ollama: &Ollama) -> bool {
    let backends = Variant::all(&ollama.libraries).into_iter().map(|variant| variant.backend());
    let has = |path: PathBuf| -> Option<bool> {
        let file = vgpu_paths::open_regular(&path).ok()?;
        let (ranges, _) = elf::constants(&file, "").ok()?;
        texts::search(&file, &ranges, [BY_ROWS]).ok().map(|[found]| found)
    };
    let has: Vec<Option<bool>> = backends.map(has).collect();
    has.is_empty() || has.iter().any(|has| *has != Some(false))
}

/// Variables that name files which llama-server loads beside every model.
const FILES: [&str; 3] = ["LLAMA_ARG_MMPROJ", "LLAMA_ARG_SPEC_DRAFT_MODEL", "LLAMA_ARG_MCP_SERVERS_CONFIG"];
/// Variables that name models which llama-server would download, and Ollama starts it with `--offline`.
const DOWNLOADS: [&str; 3] =
    ["LLAMA_ARG_MMPROJ_URL", "LLAMA_ARG_DOCKER_REPO", "LLAMA_ARG_SPEC_DRAFT_HF_REPO"];

/// Returns a variable that names a file or a model which llama-server does not get, with its value and the
/// reason.
fn model_lacking(environment: &Environment) -> Option<(&'static str, String, &'static str)> {
    let of = |name: &'static str| {
        let value = environment.get(name)?.to_string_lossy().into_owned();
        (!value.is_empty()).then_some((name, value))
    };
    let mut missing = FILES.into_iter().filter_map(of).filter(|(_, value)| rights::missing(Path::new(value)));
    let missing = missing.next().map(|(name, value)| (name, value, "names a file that does not exist"));
    let download = || DOWNLOADS.into_iter().find_map(of);
    missing.or_else(|| {
        download().map(|(name, value)| (name, value, "names a model that llama-server would download"))
    })
}

/// Returns why a value of `CUDA_VISIBLE_DEVICES` hides all devices. CUDA reads names up to the first invalid
/// one.
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
        assert_eq!(with("OLLAMA_LLM_LIBRARY", " 'cuda_v12' "), None);
        assert_eq!(with("OLLAMA_LLM_LIBRARY", "cuda_v11").unwrap(), "environment/library-override");
        assert_eq!(with("OLLAMA_LLM_LIBRARY", "vulkan").unwrap(), "environment/library-override");
        let backend = scratch.join("cuda_v12/libggml-cuda.so").display().to_string();
        assert_eq!(with("GGML_BACKEND_PATH", &backend), None);
        assert_eq!(with("GGML_BACKEND_PATH", "/x/libggml-cpu.so").unwrap(), "environment/backend-override");
        assert_eq!(with("LLAMA_ARG_N_GPU_LAYERS", "0").unwrap(), "environment/num-gpu-zero");
        assert_eq!(with("LLAMA_ARG_N_GPU_LAYERS", "99"), None);
        assert_eq!(with("LLAMA_ARG_DEVICE", "none").unwrap(), "environment/num-gpu-zero");
        assert_eq!(with("GGML_CUDA_ENABLE_UNIFIED_MEMORY", "0").unwrap(), "environment/unified-memory");
        assert_eq!(with("LLAMA_ARG_API_PREFIX", "/x").unwrap(), "environment/api-prefix");
        assert_eq!(with("LLAMA_ARG_API_PREFIX", ""), None);
        for (name, value) in
            [("LLAMA_ARG_MMPROJ", "/nonexistent.gguf"), ("LLAMA_ARG_SPEC_DRAFT_HF_REPO", "a/b")]
        {
            assert_eq!(with(name, value).unwrap(), "environment/model-file", "{name}");
        }
        assert_eq!(with("LLAMA_ARG_SPEC_DRAFT_MODEL", "/proc/self/exe"), None);
        assert_eq!(with(PER_SLOT, "1").unwrap(), "environment/context-too-small");
        for value in ["0", "-1", "4096", "x", ""] {
            assert_eq!(with(PER_SLOT, value), None, "{value}");
        }
        let few = judge(&Environment::from_iter([(PER_SLOT, "2")]), &[], 0, Some(&ollama), None);
        assert_eq!(
            (few.status, few.cause),
            (Status::Warn, Some(cause::CONTEXT_TOO_SMALL)),
            "a short prompt fits"
        );
        assert_eq!(with("LLAMA_API_KEY", "secret").unwrap(), "environment/api-key");
        assert_eq!(with("LLAMA_ARG_SSL_KEY_FILE", "/k"), None, "without a certificate there is no TLS");
        let both = [("LLAMA_ARG_SSL_KEY_FILE", "/k"), ("LLAMA_ARG_SSL_CERT_FILE", "/c")];
        assert_eq!(issue(&both, Some(&ollama)).unwrap(), "environment/tls");
        assert_eq!(with("LD_DEBUG", "all").unwrap(), "environment/loader-debug");
        let warned = judge(&Environment::from_iter([("LD_DEBUG", "all")]), &[], 0, None, None);
        assert_eq!(warned.status, Status::Warn, "what is slow works");
    }

    #[test]
    fn rows_are_split_by_backends_that_can() {
        let scratch = Scratch::new();
        std::fs::create_dir_all(scratch.join("cuda_v12")).unwrap();
        let backend = scratch.join("cuda_v12/libggml-cuda.so");
        let ollama = Ollama { era: Era::C, libraries: scratch.path().to_owned() };
        let by_rows = || issue(&[(SPLIT_MODE, "row")], Some(&ollama));
        let none = Ollama { era: Era::C, libraries: scratch.join("absent") };
        assert_eq!(issue(&[(SPLIT_MODE, "row")], Some(&none)), None, "another link misses the backend");
        std::fs::write(&backend, "").unwrap();
        assert_eq!(by_rows(), None, "what the backend has is not known");
        std::fs::copy(env!("CARGO_MANIFEST_DIR").to_owned() + "/embedded/libcudart.so.12", &backend).unwrap();
        assert_eq!(by_rows().unwrap(), "environment/split-mode");
        // This program has the name.
        std::fs::copy("/proc/self/exe", &backend).unwrap();
        assert_eq!(by_rows(), None);
    }

    #[test]
    fn what_an_era_does_not_read_is_harmless() {
        let scratch = Scratch::new();
        std::fs::create_dir_all(scratch.join("cuda_v12")).unwrap();
        std::fs::create_dir_all(scratch.join("rocm")).unwrap();
        let with = |era, name: &str, value: &str| {
            issue(&[(name, value)], Some(&Ollama { era, libraries: scratch.path().to_owned() }))
        };
        for era in [Era::A, Era::B] {
            assert_eq!(with(era, "GGML_BACKEND_PATH", "/x/libggml-cpu.so"), None);
            assert_eq!(with(era, "LLAMA_ARG_N_GPU_LAYERS", "0"), None);
            assert_eq!(with(era, "LLAMA_ARG_API_PREFIX", "/x"), None);
        }
        assert_eq!(with(Era::A, "OLLAMA_LLM_LIBRARY", "cpu_avx2"), None);
        assert_eq!(with(Era::A, "OLLAMA_LLM_LIBRARY", "rocm").unwrap(), "environment/library-override");
        assert_eq!(with(Era::B, "OLLAMA_LLM_LIBRARY", "cpu_avx2").unwrap(), "environment/library-override");
        assert_eq!(with(Era::C, "OLLAMA_NUM_GPU", "0"), None, "nothing reads it");
    }

    #[test]
    fn the_fix_is_the_services_where_it_is_the_services() {
        let environment = Environment::from_iter([("CUDA_VISIBLE_DEVICES", "-1")]);
        let finding = judge(&environment, &[], 1, None, Some("ollama.service"));
        assert_eq!(finding.fix.unwrap().command.unwrap(), "systemctl edit ollama.service");
    }
}
