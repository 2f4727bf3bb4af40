//! A function that remembers its accesses, served at a socket in a directory of its own.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use tempfile::TempDir;
use vgpu_vfio_user::{
    Bar, Decode, Function, FunctionSocket, IDENTITY, Identity, Recorder, SavedConnection, SharedRam,
    SocketError, Stop,
};

/// What was done to the function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    Read(usize, u64, usize),
    Write(usize, u64, Vec<u8>),
    Reset,
}

/// A function with registers in BAR0, and memory that the guest maps in BAR2.
pub struct Remembers {
    pub done: Mutex<Vec<Done>>,
    remember: bool,
}

impl Remembers {
    pub fn new(remember: bool) -> Arc<Self> {
        Arc::new(Self { done: Mutex::new(Vec::new()), remember })
    }

    fn push(&self, done: impl FnOnce() -> Done) {
        if self.remember {
            self.done.lock().unwrap().push(done());
        }
    }

    /// Returns what was done since the last call.
    pub fn take(&self) -> Vec<Done> {
        std::mem::take(&mut self.done.lock().unwrap())
    }
}

impl Function for Remembers {
    fn identity(&self) -> Identity {
        IDENTITY
    }

    fn bars(&self) -> [Option<Bar>; 6] {
        let registers = Bar { bytes: 0x2000, decode: Decode::Memory32 };
        let window = Bar { bytes: 0x10_0000, decode: Decode::Memory64Prefetchable };
        [Some(registers), None, Some(window), None, None, None]
    }

    fn pages_key(&self) -> u64 {
        0
    }

    fn memory(&self, bar: usize) -> Option<OwnedFd> {
        (bar == 2).then(|| tempfile::tempfile().unwrap().into())
    }

    fn read(&self, bar: usize, offset: u64, data: &mut [u8]) {
        self.push(|| Done::Read(bar, offset, data.len()));
        data.fill(0x5a);
    }

    fn write(&self, bar: usize, offset: u64, data: &[u8]) {
        self.push(|| Done::Write(bar, offset, data.to_vec()));
    }

    fn reset(&self) {
        self.push(|| Done::Reset);
    }
}

/// A function that is served until it is stopped or the test's process ends.
pub struct Served {
    pub path: PathBuf,
    pub function: Arc<Remembers>,
    pub ram: SharedRam,
    stop: Stop,
    thread: JoinHandle<FunctionSocket>,
    /// Is removed with the value.
    folder: Option<TempDir>,
}

impl Served {
    pub fn start() -> Self {
        Self::with(Remembers::new(true))
    }

    pub fn with(function: Arc<Remembers>) -> Self {
        Self::bind(function, true)
    }

    /// Starts a server that nobody continues.
    pub fn last() -> Self {
        Self::bind(Remembers::new(true), false)
    }

    fn bind(function: Arc<Remembers>, continued: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("device");
        let ram = SharedRam::default();
        let mut socket = FunctionSocket::bind(&path, None, Arc::clone(&function) as _, ram.clone()).unwrap();
        if continued {
            socket.record(Arc::new(()));
        }
        Self::serve(path, Some(folder), function, ram, socket)
    }

    fn serve(
        path: PathBuf,
        folder: Option<TempDir>,
        function: Arc<Remembers>,
        ram: SharedRam,
        mut socket: FunctionSocket,
    ) -> Self {
        let stop = socket.stopper();
        let thread = std::thread::spawn(move || {
            socket.serve().unwrap();
            socket
        });
        Self { path, function, ram, stop, thread, folder }
    }

    /// Stops the server, and returns what it has.
    pub fn stop(self) -> Stopped {
        self.stop.stop().unwrap();
        let socket = self.thread.join().unwrap();
        let (listener, connection) = socket.save().unwrap();
        Stopped { path: self.path, folder: self.folder, function: self.function, listener, connection }
    }
}

/// What a server leaves to the next one.
pub struct Stopped {
    path: PathBuf,
    folder: Option<TempDir>,
    pub function: Arc<Remembers>,
    listener: OwnedFd,
    pub connection: Option<SavedConnection>,
}

impl Stopped {
    /// Starts the next server, whose function is a new one.
    pub fn restore(self) -> Result<Served, SocketError> {
        self.restore_recorded(Arc::new(()))
    }

    /// Starts the next server, which records its answers.
    pub fn restore_recorded(self, recorder: Arc<dyn Recorder>) -> Result<Served, SocketError> {
        let (function, ram) = (Remembers::new(true), SharedRam::default());
        let (shown, held) = (Arc::clone(&function) as _, ram.clone());
        let mut socket = FunctionSocket::restore(&self.path, self.listener, self.connection, shown, held)?;
        socket.record(recorder);
        Ok(Served::serve(self.path, self.folder, function, ram, socket))
    }
}
