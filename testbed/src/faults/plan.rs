//! What a scene is to be like, before any of it is made: a healthy system, until makers of faults change it.

use anyhow::Result;
use vgpu_serve::Facts;
use vgpu_testbed::backends::Backend;

use super::scene::Scene;
pub use super::settings::{Era, Model, Service, When};

/// A change of the scene.
pub type Step = Box<dyn FnOnce(&mut Scene) -> Result<()>>;

/// Makes a fault: changes a plan.
pub type Maker = fn(&mut ScenePlan);

/// How a scene is to be made. Makers of faults change it before it is.
pub struct ScenePlan {
    /// The release of Ollama that is installed.
    pub era: Era,
    /// The backends that Ollama has.
    pub backends: Vec<Backend>,
    /// Whether Ollama is installed.
    pub installed: bool,
    /// Name of the device's executor.
    pub executor: &'static str,
    /// The devices; none: an empty bus.
    pub devices: Vec<Facts>,
    /// Options of the device's process.
    pub device_options: Vec<String>,
    /// Variables of the check.
    pub environment: Vec<(&'static str, String)>,
    /// `VGPU_SYSFS` is set.
    pub names_bus: bool,
    /// Lines of shell before the check, in a mount namespace of its own if there are any.
    pub mounts: Vec<String>,
    /// Lines of shell after those of `mounts`.
    pub limits: Vec<String>,
    /// Arguments of the sandbox.
    pub sandbox: Vec<String>,
    /// The check's user is nobody.
    pub nobody: bool,
    /// Ollama's service, if there is one.
    pub service: Option<Service>,
    /// The check is told of the service. Otherwise it sees a server that runs.
    pub names_service: bool,
    /// The model that the check asks for a token.
    pub model: Option<&'static str>,
    /// The check runs in a PID namespace of its own. It does so, too, where no Ollama is installed.
    pub pid_namespace: bool,
    /// The program that is looked at in place of Ollama: a file of the scene.
    pub program: Option<&'static str>,
    /// The launcher is the scene's own, system/vgpu-run.
    pub own_launcher: bool,
    /// Changes of the scene, each with its time.
    pub steps: Vec<(When, Step)>,
}

impl ScenePlan {
    /// Era C with a CUDA 13 backend, which is the smaller, and a device of compute capability 8.6.
    pub fn healthy() -> Self {
        Self {
            era: Era::C,
            backends: vec![Backend::Cuda13],
            installed: true,
            executor: "soft",
            devices: vec![Facts {
                address: "0000:00:05.0".to_owned(),
                name: "VGPU-STUB bench".to_owned(),
                uuid: format!("{:032x}", rand::random::<u128>()),
                cc: "8.6".to_owned(),
                memory_mib: 8192,
            }],
            device_options: Vec::new(),
            environment: Vec::new(),
            names_bus: true,
            mounts: Vec::new(),
            limits: Vec::new(),
            sandbox: Vec::new(),
            nobody: false,
            service: None,
            names_service: true,
            model: None,
            pid_namespace: false,
            program: None,
            own_launcher: false,
            steps: Vec::new(),
        }
    }

    /// The first device's compute capability.
    pub fn capability(&mut self, cc: &str) {
        for device in &mut self.devices {
            cc.clone_into(&mut device.cc);
        }
    }

    /// Something that is wrong with the device.
    pub fn wrong(&mut self, what: &str) {
        self.device_options.extend(["--wrong".to_owned(), what.to_owned()]);
    }

    /// Makes the device one of version 1, with more options.
    pub fn version_1(&mut self, more: &[&str]) {
        self.device_options.extend(["--protocol", "v1"].iter().chain(more).map(|&option| option.to_owned()));
    }

    /// Adds a change of the scene at that time.
    pub fn step(&mut self, when: When, step: impl FnOnce(&mut Scene) -> Result<()> + 'static) {
        self.steps.push((when, Box::new(step)));
    }

    /// Sets a variable of the check's environment.
    pub fn set(&mut self, name: &'static str, value: impl Into<String>) {
        self.environment.push((name, value.into()));
    }

    /// Returns the service, made if there is none yet.
    pub fn service(&mut self) -> &mut Service {
        self.service.get_or_insert_default()
    }
}
