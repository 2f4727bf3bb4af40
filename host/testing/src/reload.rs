//! A device of this process that is saved and restored, as if its process were replaced. The threads of the
//! device that was saved stay where they are, as nothing is left of them in a process that is replaced.

use std::fs::File;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::Instant;

use rustix::process::{Resource, getrlimit, setrlimit};
use vgpu_device::{Device, DeviceConfig, DeviceState, PauseError, PausedDevice, SessionStatus, Window};
use vgpu_wire::registers::WAKE_FUTEX;

use super::guest::{Function, Guest, PATIENCE, READ, end};

/// A device that can be replaced by its restored self.
pub struct Reloadable {
    device: Arc<RwLock<Option<Device>>>,
    make: Box<dyn Fn() -> DeviceConfig + Send + Sync>,
    window: File,
    bytes: u64,
}

/// A device that is in use.
pub struct InUse<'a>(RwLockReadGuard<'a, Option<Device>>);

impl std::ops::Deref for InUse<'_> {
    type Target = Device;

    fn deref(&self) -> &Device {
        self.0.as_ref().expect("a device")
    }
}

impl Reloadable {
    /// Serves a device of the configuration that `make` returns. It is called again for each restored one.
    pub fn new(make: impl Fn() -> DeviceConfig + Send + Sync + 'static) -> Self {
        // What the old devices have is never closed.
        let mut files = getrlimit(Resource::Nofile);
        files.current = files.maximum;
        setrlimit(Resource::Nofile, files).expect("more descriptors");
        let config = make();
        let bytes = config.window_bytes;
        let window = Arc::new(Window::anonymous(bytes).expect("a window"));
        let file = File::from(window.file().try_clone_to_owned().expect("its file"));
        let device = Device::new(&config, window, WAKE_FUTEX).expect("a device");
        let device = Arc::new(RwLock::new(Some(device)));
        Self { device, make: Box::new(make), window: file, bytes }
    }

    /// Returns the device. It is not replaced meanwhile.
    pub fn device(&self) -> InUse<'_> {
        InUse(self.device.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the function as a guest accesses it. An access waits while the device is replaced.
    pub fn function(&self) -> Function {
        let device = Arc::clone(&self.device);
        let window = self.window.try_clone().expect("the window's file");
        let access = move |operation, offset, value| {
            let device = InUse(device.read().unwrap_or_else(PoisonError::into_inner));
            if operation == READ {
                return device.read(offset);
            }
            device.write(offset, value);
            0
        };
        Function::direct(window, self.bytes, Arc::new(access))
    }

    /// Attaches a guest to a channel, and greets the device.
    pub fn guest(&self, channel: u32) -> Guest {
        let function = self.function();
        end(&function, channel);
        let mut guest = Guest::attach_silently(function, channel);
        guest.hello();
        guest
    }

    /// Returns the status of a channel's session.
    pub fn session(&self, channel: u32) -> Option<SessionStatus> {
        self.device().status().sessions.into_iter().find(|session| session.channel == channel)
    }

    /// Pauses the device and lets it go on.
    pub fn pause_and_resume(&self) -> Result<DeviceState, PauseError> {
        let device = self.device.write().unwrap_or_else(PoisonError::into_inner);
        let device = device.as_ref().expect("a device");
        let paused = device.pause(Instant::now() + PATIENCE)?;
        device.resume();
        Ok(paused.state)
    }

    /// Replaces the device by its restored self. Returns the state as text.
    pub fn reload(&self) -> String {
        self.reload_after(|_| ())
    }

    /// Replaces the device as [`Reloadable::reload`] does. `meanwhile` is called with the state after the old
    /// device has stopped and before the new one starts.
    pub fn reload_after(&self, meanwhile: impl FnOnce(&str)) -> String {
        let mut device = self.device.write().unwrap_or_else(PoisonError::into_inner);
        let old = device.take().expect("a device");
        let paused = old.pause(Instant::now() + PATIENCE).expect("a state");
        std::mem::forget(old);
        let PausedDevice { state, mut descriptors } = paused;
        let text = state.to_json().expect("text");
        meanwhile(&text);
        let config = (self.make)();
        let read = DeviceState::parse(text.as_bytes()).expect("the state");
        assert_eq!(read, state, "it is read as it was written");
        read.check(&config).expect("a state of this device");
        let window = self.window.try_clone().expect("the window's file");
        let window = Window::from_file_range(window, 0, self.bytes).expect("the window");
        let new = Device::restore(&config, &read, &mut descriptors, Arc::new(window), WAKE_FUTEX);
        *device = Some(new.expect("a restored device"));
        assert_eq!(descriptors.iter().count(), 0, "each descriptor has its place");
        text
    }
}
