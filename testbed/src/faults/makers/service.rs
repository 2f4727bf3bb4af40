//! Faults of a running service: who started it, what it holds, and which program listens at its address.

use std::fs;

use rustix::process::Signal;
use vgpu_testbed::bed::stopped;

use super::super::plan::{Maker, Model, ScenePlan, When};
use super::super::scene::install::script;

/// Device memory and size of a model in MiB, chosen so that no second model fits.
const SMALL: (u64, &str) = (2048, "1984");

/// Restarts the device's host with the same device at this time.
fn restarted(plan: &mut ScenePlan, when: When) {
    plan.step(when, |scene| {
        let bed = scene.bed()?;
        bed.kill()?;
        bed.restart()
    });
}

/// Runs a server with a loaded model, and tells the check only its address.
fn server_with_model(plan: &mut ScenePlan) {
    plan.names_service = false;
    plan.service().model = Model::Usual;
}

/// Makers in this file, by their names in the catalogue.
pub const MAKERS: &[(&str, Maker)] = &[
    ("service-not-wrapped", |plan| {
        let service = plan.service();
        (service.wrapped, service.unit_wrapped) = (false, false);
    }),
    ("service-not-restarted", |plan| plan.service().wrapped = false),
    ("runner-of-old-files", |plan| {
        plan.service();
        plan.step(When::Running, |scene| {
            let (path, real) = (scene.library("llama-server"), scene.library("llama-server.real"));
            fs::rename(&path, &real)?;
            script(&path, &format!("exec env -i {} \"$@\"", real.display()))?;
            scene.load_model(Model::Usual)?;
            Ok(fs::rename(real, path)?)
        });
    }),
    ("service-before-files", |plan| {
        plan.service();
        plan.step(When::Served, |scene| {
            Ok(fs::rename(scene.library("llama-server"), scene.library("llama-server.away"))?)
        });
        plan.step(When::Running, |scene| {
            Ok(fs::rename(scene.library("llama-server.away"), scene.library("llama-server"))?)
        });
    }),
    ("model-in-ordinary-memory", |plan| plan.service().model = Model::OffDevice),
    ("service-stopped", |plan| {
        plan.service();
        plan.step(When::Running, |scene| {
            let server = scene.running()?;
            server.signal(Signal::STOP);
            stopped(server.pid())
        });
    }),
    ("another-server-on-the-port", |plan| {
        plan.service().environment.push(("STANDIN_LISTEN", "127.0.0.1:0".to_owned()));
        plan.step(When::Running, |scene| {
            scene.answer_with("<html><title>Sign in to the network</title></html>")
        });
    }),
    ("another-ollama-on-the-port", |plan| {
        plan.service().environment.push(("STANDIN_LISTEN", "127.0.0.1:0".to_owned()));
        plan.step(When::Running, |scene| {
            let address = scene.address();
            scene.serve_beside(&address)?;
            scene.wait_for_service()
        });
    }),
    ("device-restarted-under-a-model", |plan| {
        plan.service().model = Model::Usual;
        restarted(plan, When::Running);
    }),
    ("device-restarted-before-the-model", |plan| {
        plan.service();
        restarted(plan, When::Running);
        plan.step(When::Running, |scene| scene.load_model(Model::Usual));
    }),
    ("server-beside-another", |plan| {
        server_with_model(plan);
        // This process is older than the service.
        plan.step(When::Served, |scene| scene.serve_beside("127.0.0.1:0"));
    }),
    ("model-answers", |plan| {
        plan.service();
        plan.model = Some("bench");
    }),
    ("model-not-there", |plan| {
        plan.service().environment.push(("STANDIN_MODELS", "bench".to_owned()));
        plan.model = Some("nothing");
    }),
    ("model-does-not-fit", |plan| {
        plan.service().environment.push(("STANDIN_MODEL_MIB", "9000".to_owned()));
        plan.model = Some("bench");
    }),
    ("model-lands-on-cpu", |plan| {
        plan.service().environment.push(("LLAMA_ARG_N_GPU_LAYERS", "0".to_owned()));
        plan.model = Some("bench");
    }),
    ("channels-held-by-the-server", |plan| {
        plan.device_options.extend(["--channels".to_owned(), "1".to_owned()]);
        server_with_model(plan);
    }),
    ("memory-held-by-the-server", |plan| {
        plan.devices[0].memory_mib = SMALL.0;
        plan.service().environment.push(("STANDIN_MODEL_MIB", SMALL.1.to_owned()));
        server_with_model(plan);
    }),
    ("turn-held-by-the-server", |plan| {
        plan.version_1(&[]);
        plan.service().environment.push(("STANDIN_LOCK", "$BUS/vgpu_transport.lock".to_owned()));
        server_with_model(plan);
    }),
    ("service-wrapped", |plan| plan.service().model = Model::Usual),
];
