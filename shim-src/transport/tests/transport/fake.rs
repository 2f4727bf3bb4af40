//! A scripted device for tests: registers that may return any value, and a host that answers as a test
//! specifies. Its window is a file that it reads and writes, so it needs no mapping.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, accept, bind,
    listen, recv, send, shutdown, socket_with,
};
use vgpu_transport_bed::folder;
use vgpu_wire::facts::HelloReply;
use vgpu_wire::registers::{self as reg, channel};
use vgpu_wire::{Body, Message, TABLE_DIGEST, WIRE_VERSION, area, pci};
use zerocopy::{FromZeros, IntoBytes};

const WINDOW_MIB: u32 = 4;
const SESSION: u32 = 77;
const GENERATION: u32 = 0x1234;

/// Handles a message in place of or before the regular host. Returns true if the message needs no further
/// handling.
pub type Script = Box<dyn Fn(&Host, u64, &Message<'_>) -> bool + Send + Sync>;

/// The host's end of channel 0.
pub struct Host {
    window: File,
    registers: Mutex<HashMap<u32, u32>>,
    over: AtomicBool,
}

impl Host {
    pub fn put(&self, offset: u64, bytes: &[u8]) {
        self.window.write_all_at(bytes, offset).unwrap();
    }

    /// Stores a word of the return area.
    pub fn put64(&self, offset: u64, value: u64) {
        self.put(area::RETURN + offset, &value.to_le_bytes());
    }

    pub fn put32(&self, offset: u64, value: u32) {
        self.put(area::RETURN + offset, &value.to_le_bytes());
    }

    fn get64(&self, offset: u64) -> u64 {
        let mut bytes = [0; 8];
        self.window.read_exact_at(&mut bytes, offset).unwrap();
        u64::from_le_bytes(bytes)
    }

    /// Stores a reply, with a length that may differ from the data's.
    pub fn reply(&self, slot: u32, ticket: u64, status: u32, len: u32, data: &[u8]) {
        let slot = area::RETURN_REPLIES + u64::from(slot) * area::REPLY_BYTES;
        self.put(area::RETURN + slot + area::REPLY_DATA, data);
        self.put32(slot + area::REPLY_STATUS, status);
        self.put32(slot + area::REPLY_LEN, len);
        self.put64(slot + area::REPLY_TICKET, ticket);
    }

    pub fn mark(&self, word: u32, value: u64) {
        self.put64(area::RETURN_WORDS + u64::from(word) * area::WORD_BYTES, value);
    }

    pub fn set(&self, register: u32, value: u32) {
        self.registers.lock().unwrap().insert(register, value);
    }

    fn read(&self, register: u32) -> u32 {
        self.registers.lock().unwrap().get(&register).copied().unwrap_or(0)
    }

    fn write(&self, register: u32, value: u32) {
        let at = |register| channel::base(0) + register;
        let mine = value == self.read(at(channel::SESSION));
        if register == at(channel::CONTROL) || register == at(channel::DETACH_SESSION) && mine {
            let attached = register == at(channel::CONTROL) && self.read(at(channel::ERROR)) == 0;
            self.set(channel::base(0) + channel::STATE, u32::from(attached));
            self.set(channel::base(0) + channel::SESSION, if attached { SESSION } else { 0 });
            self.set(reg::V2_ATTACHED_LO, u32::from(attached));
        } else {
            self.set(register, value);
        }
    }

    /// Answers a message like a correct host.
    fn obey(&self, number: u64, message: &Message<'_>) {
        match &message.body {
            Body::Hello(hello) => {
                let mut reply = HelloReply::new_zeroed();
                (reply.session, reply.generation) = (SESSION, GENERATION);
                reply.window_bytes = 1 << 20;
                // The text has no zero at its end.
                reply.facts.name = [b'x'; 256];
                self.reply(hello.reply, number, 0, reply.as_bytes().len() as u32, reply.as_bytes());
            }
            Body::Echo(echo) => self.reply(echo.reply, number, 0, 8, echo.cookie.as_bytes()),
            Body::Signal(signal) => self.mark(signal.mark.word, signal.mark.value),
            _ => {}
        }
    }

    /// Reads and executes messages until the session ends.
    fn serve(&self, script: &Script) {
        let (mut head, mut number) = (0, 0);
        while !self.over.load(Ordering::Relaxed) {
            let tail = self.get64(area::SUBMIT_TAIL);
            if head == tail {
                std::thread::sleep(Duration::from_micros(200));
                continue;
            }
            let mut bytes = vec![0; (area::RING_BYTES - head % area::RING_BYTES).min(tail - head) as usize];
            self.window.read_exact_at(&mut bytes, area::RING + head % area::RING_BYTES).unwrap();
            let message = Message::decode(&bytes).unwrap();
            number += 1;
            assert_eq!(u64::from(message.header.number), number);
            head += u64::from(message.header.bytes);
            if !script(self, number, &message) {
                self.obey(number, &message);
            }
            self.put64(area::RETURN_HEAD, head);
            self.put64(area::RETURN_DONE, number);
        }
    }
}

/// The scripted device, on a simulated bus of its own.
pub struct Fake {
    dir: tempfile::TempDir,
    host: Arc<Host>,
    listener: Arc<OwnedFd>,
    threads: Vec<JoinHandle<()>>,
}

impl Fake {
    pub fn new(script: Script) -> Self {
        let dir = folder();
        let function = dir.path().join("bus/pci/devices/0000:00:05.0");
        std::fs::create_dir_all(&function).unwrap();
        let resource = |bytes: u64| {
            let none = "0x0 0x0 0x0\n";
            format!("0x1000 {:#x} 0x40200\n{none}{none}{none}{none}{none}", 0x1000 + bytes - 1)
        };
        for (name, text) in [
            ("vendor", "0x10de"),
            ("device", "0x2331"),
            ("class", "0x030200"),
            ("subsystem_vendor", "0x10de"),
            ("subsystem_device", "0x16c1"),
            ("resource", &resource(pci::V2_BAR0_BYTES)),
        ] {
            std::fs::write(function.join(name), text).unwrap();
        }
        let window =
            File::options().read(true).write(true).create_new(true).open(function.join("resource2")).unwrap();
        window.set_len(u64::from(WINDOW_MIB) << 20).unwrap();
        let registers = HashMap::from([
            (reg::PROTOCOL_VER, reg::PROTOCOL_V2),
            (reg::CAPABILITIES, reg::CAP_BASIC | reg::CAP_V2),
            (reg::V2_WIRE_VERSION, WIRE_VERSION),
            (reg::V2_DIGEST_LO, TABLE_DIGEST as u32),
            (reg::V2_DIGEST_HI, (TABLE_DIGEST >> 32) as u32),
            (reg::V2_CHANNELS, 1),
            (reg::V2_AREA_STRIDE, area::AREA_BYTES as u32),
            (reg::V2_GENERATION, GENERATION),
            (reg::V2_EXECUTOR, reg::EXECUTOR_READY),
            (reg::V2_WINDOW_MIB, WINDOW_MIB),
        ]);
        let host = Arc::new(Host { window, registers: Mutex::new(registers), over: AtomicBool::new(false) });
        let flags = SocketFlags::CLOEXEC;
        let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        bind(&listener, &SocketAddrUnix::new(function.join("resource0")).unwrap()).unwrap();
        listen(&listener, 8).unwrap();
        let listener = Arc::new(listener);
        let answering = (Arc::clone(&listener), Arc::clone(&host));
        let pumping = Arc::clone(&host);
        let threads = vec![
            std::thread::spawn(move || answer_all(&answering.0, &answering.1)),
            std::thread::spawn(move || pumping.serve(&script)),
        ];
        Self { dir, host, listener, threads }
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn host(&self) -> &Host {
        &self.host
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.host.over.store(true, Ordering::Relaxed);
        let _ = shutdown(&*self.listener, Shutdown::Both);
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

/// Answers one connection after the other; a test has one at a time.
fn answer_all(listener: &OwnedFd, host: &Host) {
    while let Ok(connection) = accept(listener) {
        let mut packet = [0u8; 16 * 12];
        while let Ok((bytes @ 12.., _)) = recv(&connection, &mut packet[..], RecvFlags::empty()) {
            let mut answer = Vec::new();
            for request in packet[..bytes].chunks_exact(12) {
                let [op, offset, value] =
                    [0, 4, 8].map(|at| u32::from_le_bytes(request[at..at + 4].try_into().unwrap()));
                let value = if op == 1 {
                    host.read(offset)
                } else {
                    host.write(offset, value);
                    value
                };
                answer.extend([0, value].map(u32::to_le_bytes).concat());
            }
            if send(&connection, &answer, SendFlags::NOSIGNAL).is_err() {
                break;
            }
        }
    }
}
