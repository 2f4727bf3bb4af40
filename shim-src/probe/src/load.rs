//! `load BACKEND --with LIB...`: opens a backend as Ollama does, after GGML's own libraries, and lists its
//! devices.

use std::ffi::{OsStr, OsString};

use serde_json::{Value, json};

use crate::ggml::{Base, Registered};
use crate::library::{Library, Scope};
use crate::say::{Fault, Say};
use crate::{maps, resolve};

/// Runs the steps in order. Each needs the ones before it.
pub fn run(backend: &OsStr, with: &[OsString], say: &mut Say) {
    let mut base = None;
    for name in with {
        let text = name.to_string_lossy();
        let Some(library) = say.step(&format!("open {text}"), |fields| {
            let library = Library::open(name, Scope::Global)?;
            resolve::place(library, fields).map(|()| library)
        }) else {
            return;
        };
        base.get_or_insert(library);
    }
    let Some(library) = say.step("open", |fields| {
        let library = Library::open(backend, Scope::Local)?;
        resolve::place(library, fields)?;
        let objects: Vec<Value> = maps::objects().iter().map(maps::Mapped::json).collect();
        fields.insert("objects".into(), objects.into());
        Ok(library)
    }) else {
        return;
    };
    // A backend loads its own libggml-base, whose functions can be found through the backend's handle.
    let functions = Base::of(base.unwrap_or(library)).or_else(|_| Base::of(library));
    say.step("start", |fields| {
        let base = functions?;
        let registered = Registered::start(&base, library)?;
        fields.insert("backend".into(), registered.name().into());
        let count = registered.count();
        fields.insert("count".into(), count.into());
        Ok((base, count))
    })
    .map(|(base, count)| {
        say.step("devices", |fields| {
            // A process has one registry, so this call returns the same one again.
            let registered = Registered::start(&base, library)?;
            let devices: Vec<Value> = (0..count)
                .map(|index| {
                    let device = registered.device(index);
                    json!({
                        "name": device.name, "description": device.description,
                        "free": device.free, "total": device.total,
                    })
                })
                .collect();
            fields.insert("devices".into(), devices.into());
            if count == 0 { Err(Fault::wrong("ggml_backend_reg_dev_count", "no device")) } else { Ok(()) }
        })
    });
}
