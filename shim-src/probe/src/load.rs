//! `load BACKEND --with LIB...`: opens a backend as Ollama does, after GGML's own libraries, and lists its
//! devices.

use std::ffi::{OsStr, OsString};

use vgpu_probe_steps::{Devices, Fault, Opened, Resolved, Started};

use crate::ggml::{Base, Registered};
use crate::library::{Library, Scope};
use crate::say::Say;
use crate::{maps, resolve};

/// Runs the steps in order. Each needs the ones before it.
pub fn load_backend(backend: &OsStr, with: &[OsString], say: &mut Say) {
    let mut base = None;
    for name in with {
        let text = name.to_string_lossy();
        let Some(library) = say.named(&format!("open {text}"), |said| {
            let library = Library::open(name, Scope::Global)?;
            *said = resolve::place(library)?;
            Ok(library)
        }) else {
            return;
        };
        base.get_or_insert(library);
    }
    let Some(library) = say.step(|said| {
        let library = Library::open(backend, Scope::Local)?;
        let Resolved { path, file } = resolve::place(library)?;
        let objects = maps::objects().into_iter().map(|found| found.file).collect();
        *said = Opened { path, file, objects };
        Ok(library)
    }) else {
        return;
    };
    // A backend loads its own libggml-base, whose functions can be found through the backend's handle.
    let functions = Base::from_library(base.unwrap_or(library)).or_else(|_| Base::from_library(library));
    say.step(|said| {
        let base = functions?;
        let registered = Registered::start(&base, library)?;
        *said = Started { backend: registered.name(), count: registered.count() };
        Ok((base, said.count))
    })
    .map(|(base, count)| {
        say.step(|said: &mut Devices| {
            // The registry is made once for each process: this gives the same one.
            let registered = Registered::start(&base, library)?;
            said.devices = (0..count).map(|index| registered.device(index)).collect();
            if count == 0 { Err(Fault::wrong("ggml_backend_reg_dev_count", "no device")) } else { Ok(()) }
        })
    });
}
