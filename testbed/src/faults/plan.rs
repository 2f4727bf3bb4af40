//! Plan of a scene before it is built: a healthy system, which makers of faults change.

use anyhow::Result;
use vgpu_serve::Facts;
use vgpu_testbed::backends::Backend;

use super::scene::Scene;
pub use super::settings::{Era, Model, Service, When};

/// A change that is applied to the scene.
pub type Step = Box<dyn FnOnce(&mut Scene) -> Result<()>>;

/// Function that creates a fault by changing the plan of a scene.
pub type Maker = fn(&mut ScenePlan);

/// Description of a scene before it is built, which makers of faults change.
pub struct ScenePlan {
    /// Ollama release to install.
    pub era: Era,
    /// CUDA backends that Ollama has.
    pub backends: Vec<Backend>,
    /// Whether Ollama's files are installed in the scene.
    pub installed: bool,
    /// Name of the device's executor.
    pub executor: &'static str,
    /// Facts of the devices; the bus is empty if there are none.
    pub devices: Vec<Facts>,
    /// Additional options of the device process.
    pub device_options: Vec<String>,
    /// Environment variables of the check.
    pub environment: Vec<(&'static str, String)>,
    /// Whether `VGPU_SYSFS` is set for the check.
    pub names_bus: bool,
    /// Shell commands to run before the check. If there are any, they run in a mount namespace of their own.
    pub mounts: Vec<String>,
    /// Shell commands to run after `mounts`.
    pub limits: Vec<String>,
    /// Arguments of the stand-in's sandbox in which the check runs.
    pub sandbox: Vec<String>,
    /// Whether the check runs as the user nobody.
    pub nobody: bool,
    /// Ollama's service, if there is one.
    pub service: Option<Service>,
    /// Whether the check is told of the service. Otherwise it finds only a running server.
    pub names_service: bool,
    /// Model of which the check requests a token.
    pub model: Option<&'static str>,
    /// Whether the check runs in a PID namespace of its own. It also does so if no Ollama is installed.
    pub pid_namespace: bool,
    /// Program that is checked in place of Ollama, as a file of the scene.
    pub program: Option<&'static str>,
    /// Whether the check uses the scene's own launcher, system/vgpu-run.
    pub own_launcher: bool,
    /// Changes of the scene, each with the time at which it is applied.
    pub steps: Vec<(When, Step)>,
}

impl ScenePlan {
    /// Returns a plan of an era C release with the CUDA 13 backend, the smaller one, and a device of compute
    /// capability 8.6.
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

    /// Sets the first device's compute capability.
    pub fn capability(&mut self, cc: &str) {
        for device in &mut self.devices {
            cc.clone_into(&mut device.cc);
        }
    }

    /// Adds a fault to inject into the device.
    pub fn wrong(&mut self, what: &str) {
        self.device_options.extend(["--wrong".to_owned(), what.to_owned()]);
    }

    /// Makes the device one of version 1, with additional options.
    pub fn version_1(&mut self, more: &[&str]) {
        self.device_options.extend(["--protocol", "v1"].iter().chain(more).map(|&option| option.to_owned()));
    }

    /// Adds a change of the scene to be applied at that time.
    pub fn step(&mut self, when: When, step: impl FnOnce(&mut Scene) -> Result<()> + 'static) {
        self.steps.push((when, Box::new(step)));
    }

    /// Sets an environment variable of the check.
    pub fn set(&mut self, name: &'static str, value: impl Into<String>) {
        self.environment.push((name, value.into()));
    }

    /// Returns the service, which is created if the plan has none.
    pub fn service(&mut self) -> &mut Service {
        self.service.get_or_insert_default()
    }
}
