//! A guest without shims, which accesses registers over the socket and writes messages by hand, whether valid
//! or not.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::thread::futex;
use vgpu_device::{PciAddress, connect_bar};
use vgpu_wire::body::session::{Echo, Hello, Pad};
use vgpu_wire::facts::HelloReply;
use vgpu_wire::registers::{self as reg, channel};
use vgpu_wire::{Header, Payload, RoundTrip, TABLE_DIGEST, WIRE_VERSION, area, padded};
use vm_memory::{FileOffset, MmapRegion, VolatileMemory};
use zerocopy::{FromBytes, IntoBytes};

/// Operation that reads a register.
pub const READ: u32 = 1;
/// Operation that writes a register.
pub const WRITE: u32 = 2;

/// Time limit for everything that a test waits for.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// Polls `done` until it returns true. Panics with `what` if that takes too long.
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let mut start = None;
    loop {
        for _ in 0..256 {
            if done() {
                return;
            }
            std::hint::spin_loop();
        }
        // The pause lets the other side use this CPU.
        let start = *start.get_or_insert_with(Instant::now);
        assert!(start.elapsed() <= PATIENCE, "waited in vain: {what}");
        std::thread::yield_now();
    }
}

/// Carries out an access to a register: operation, offset and value. Returns what it read.
pub type RegisterAccess = Arc<dyn Fn(u32, u32, u32) -> u32 + Send + Sync>;

/// How a function's registers are accessed.
enum Registers {
    Socket(OwnedFd),
    /// In this process, without a bus.
    Direct(RegisterAccess),
}

/// BAR0 and BAR2 of a function, as a guest accesses them.
pub struct Function {
    registers: Registers,
    /// Mapping of BAR2 from its file.
    pub window: MmapRegion<()>,
}

impl Function {
    /// Opens the function at `address` of the bus in `folder`.
    pub fn open(folder: &Path, address: PciAddress) -> Self {
        let dir = folder.join("bus/pci/devices").join(address.to_string());
        let socket = register_socket(&dir.join("resource0")).expect("the register socket");
        let file = File::options().read(true).write(true).open(dir.join("resource2")).expect("the window");
        let bytes = file.metadata().expect("the window's size").len();
        let window =
            MmapRegion::from_file(FileOffset::new(file, 0), bytes as usize).expect("the mapped window");
        Self { registers: Registers::Socket(socket), window }
    }

    /// Makes the function of a device of this process, whose window is a file of `bytes` bytes.
    pub fn direct(window: File, bytes: u64, access: RegisterAccess) -> Self {
        let window = MmapRegion::from_file(FileOffset::new(window, 0), bytes as usize);
        Self { registers: Registers::Direct(access), window: window.expect("the mapped window") }
    }

    fn access(&self, operation: u32, offset: u32, value: u32) -> Option<u32> {
        let socket = match &self.registers {
            Registers::Socket(socket) => socket,
            Registers::Direct(access) => return Some(access(operation, offset, value)),
        };
        let request = [operation, offset, value];
        send(socket, request.as_bytes(), SendFlags::NOSIGNAL).ok()?;
        let mut answer = [0u8; 8];
        match recv(socket, &mut answer[..], RecvFlags::empty()) {
            Ok((8, _)) => Some(u32::from_le_bytes([answer[4], answer[5], answer[6], answer[7]])),
            _ => None,
        }
    }

    /// Reads a register. Returns all ones if the device is gone.
    pub fn read(&self, offset: u32) -> u32 {
        self.try_read(offset).unwrap_or(reg::ALL_ONES)
    }

    /// Reads a register. Returns `None` if the device does not answer.
    pub fn try_read(&self, offset: u32) -> Option<u32> {
        self.access(READ, offset, 0)
    }

    /// Writes a register of BAR0.
    pub fn write(&self, offset: u32, value: u32) {
        self.access(WRITE, offset, value);
    }

    /// Sends a packet, which need not be a register access, and returns the answer if there is one.
    pub fn packet(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let Registers::Socket(socket) = &self.registers else { return None };
        send(socket, bytes, SendFlags::NOSIGNAL).ok()?;
        let mut answer = [0u8; 64];
        match recv(socket, &mut answer[..], RecvFlags::empty()) {
            Ok((bytes, _)) if bytes > 0 => Some(answer[..bytes].to_vec()),
            _ => None,
        }
    }

    /// Returns the 64-bit field at `offset` of the window.
    pub fn u64_at(&self, offset: u64) -> &AtomicU64 {
        self.window.get_atomic_ref(offset as usize).expect("a field of the window")
    }

    /// Returns the 32-bit field at `offset` of the window.
    pub fn u32_at(&self, offset: u64) -> &AtomicU32 {
        self.window.get_atomic_ref(offset as usize).expect("a field of the window")
    }

    /// Copies `bytes` into the window.
    pub fn put(&self, offset: u64, bytes: &[u8]) {
        self.window.get_slice(offset as usize, bytes.len()).expect("a range of the window").copy_from(bytes);
    }

    /// Copies `bytes` bytes out of the window.
    pub fn get(&self, offset: u64, bytes: u64) -> Vec<u8> {
        let mut out = vec![0; bytes as usize];
        self.window
            .get_slice(offset as usize, bytes as usize)
            .expect("a range of the window")
            .copy_to(&mut out);
        out
    }
}

fn register_socket(path: &Path) -> io::Result<OwnedFd> {
    let socket = connect_bar(path)?;
    // An access without an answer fails its test.
    set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
    Ok(socket)
}

/// Ends the session of a channel, if there is one, and waits until the channel is free.
pub fn end(function: &Function, index: u32) {
    let at = |register| channel::base(index) + register;
    function.write(at(channel::DETACH_SESSION), function.read(at(channel::SESSION)));
    until("the channel is free", || {
        matches!(function.read(at(channel::STATE)), channel::STATE_FREE | reg::ALL_ONES)
    });
}

/// A late error: its code, its flags, and the number of the message that caused it.
pub type Late = (u32, u32, u64);

/// A guest process that is attached to a channel.
pub struct Guest {
    /// Function that has the channel.
    pub function: Function,
    /// Index of the channel.
    pub channel: u32,
    /// Offset of the channel's area in the window.
    pub area: u64,
    /// Number of bytes written to the ring, whether published or not.
    pub tail: u64,
    /// Number of the newest message.
    pub number: u64,
    /// Number of bytes that the host had read when the guest last checked.
    head: u64,
}

impl Guest {
    /// Attaches with this version and digest. Returns the code of the refusal if the device refuses.
    pub fn try_attach(
        function: Function,
        channel: u32,
        version: u32,
        digest: u64,
    ) -> Result<Self, (u32, Function)> {
        let base = channel::base(channel);
        function.write(base + channel::GUEST_VERSION, version);
        function.write(base + channel::GUEST_DIGEST_LO, digest as u32);
        function.write(base + channel::GUEST_DIGEST_HI, (digest >> 32) as u32);
        function.write(base + channel::PROCESS, std::process::id());
        function.write(base + channel::CONTROL, channel::ATTACH);
        let error = function.read(base + channel::ERROR);
        // The channel may hold the session of another process.
        if function.read(base + channel::STATE) != channel::STATE_ATTACHED || error != 0 {
            return Err((error, function));
        }
        let area = u64::from(function.read(reg::V2_AREA_STRIDE)) * u64::from(channel);
        Ok(Self { function, channel, area, tail: 0, number: 0, head: 0 })
    }

    /// Continues a guest that is attached and has written `tail` bytes, `number` messages.
    pub fn continued(function: Function, channel: u32, tail: u64, number: u64) -> Self {
        let area = u64::from(function.read(reg::V2_AREA_STRIDE)) * u64::from(channel);
        let mut guest = Self { function, channel, area, tail, number, head: 0 };
        guest.head = guest.head();
        guest
    }

    /// Attaches to a channel without sending the greeting.
    pub fn attach_silently(function: Function, channel: u32) -> Self {
        Self::try_attach(function, channel, WIRE_VERSION, TABLE_DIGEST)
            .unwrap_or_else(|(why, _)| panic!("attach refused: {why}"))
    }

    /// Attaches and greets the host. Ends the session of a dead process that still holds the channel, as the
    /// owner of the channel's lock may.
    pub fn attach(folder: &Path, address: PciAddress, channel: u32) -> Self {
        let function = Function::open(folder, address);
        end(&function, channel);
        let mut guest = Self::attach_silently(function, channel);
        guest.hello();
        guest
    }

    /// Sends the greeting and returns the answer.
    pub fn hello(&mut self) -> HelloReply {
        let (status, data) = self.call(Hello { reply: 0, process: std::process::id(), reserved: 0 }, &[]);
        assert_eq!(status, 0);
        HelloReply::read_from_bytes(&data).expect("a whole reply")
    }

    /// Makes a round trip, which shows that the session is alive.
    pub fn echo(&mut self) {
        let cookie = self.number ^ 0x0123_4567_89ab_cdef;
        let (status, data) = self.call(Echo { reply: 0, reserved: 0, cookie }, &[]);
        assert_eq!((status, data.as_slice()), (0, cookie.as_bytes()));
    }

    /// Reads a register of the channel.
    pub fn register(&self, offset: u32) -> u32 {
        self.function.read(channel::base(self.channel) + offset)
    }

    /// Writes the channel's control register.
    pub fn control(&self, value: u32) {
        self.function.write(channel::base(self.channel) + channel::CONTROL, value);
    }

    /// Detaches and waits until the session has ended.
    pub fn detach(&self) {
        end(&self.function, self.channel);
    }

    /// Returns the offset of the return area in the window.
    pub fn returns(&self) -> u64 {
        self.area + area::RETURN
    }

    /// Returns the number of messages that the host reports as carried out.
    pub fn done(&self) -> u64 {
        self.function.u64_at(self.returns() + area::RETURN_DONE).load(Ordering::Acquire)
    }

    /// Returns the number of bytes of the ring that the host reports as read.
    pub fn head(&self) -> u64 {
        self.function.u64_at(self.returns() + area::RETURN_HEAD).load(Ordering::Acquire)
    }

    /// Returns the newest late error.
    pub fn late(&self) -> Option<Late> {
        let returns = self.returns();
        let message = self.function.u64_at(returns + area::RETURN_ERROR_MESSAGE).load(Ordering::Acquire);
        let code = self.function.u32_at(returns + area::RETURN_ERROR).load(Ordering::Relaxed);
        let flags = self.function.u32_at(returns + area::RETURN_ERROR_FLAGS).load(Ordering::Relaxed);
        (message != 0).then_some((code, flags, message))
    }

    /// Returns the kernel, reason and address of the failure of message `number`, if the newest explanation
    /// belongs to that message.
    pub fn why(&self, number: u64) -> Option<(String, String, Option<u64>)> {
        let returns = self.returns();
        let half = |field| self.function.u32_at(returns + field).load(Ordering::Relaxed);
        if self.function.u64_at(returns + area::RETURN_WHY).load(Ordering::Acquire) != number {
            return None;
        }
        let words = (0..area::WHY_TEXT_MAX as u64).step_by(4).map(|at| half(area::RETURN_WHY_TEXT + at));
        let mut text: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
        text.truncate(half(area::RETURN_WHY_BYTES) as usize);
        let (kernel, reason) = text.split_at(half(area::RETURN_WHY_KERNEL) as usize);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let at = self.function.u64_at(returns + area::RETURN_WHY_AT).load(Ordering::Relaxed);
        let address = (half(area::RETURN_WHY_FLAGS) & area::WHY_ADDRESS != 0).then_some(at);
        Some((text(kernel), text(reason), address))
    }

    /// Waits until `bytes` fit before the end of the ring. If they can never fit there, it pads the ring to
    /// its end first.
    fn room(&mut self, bytes: u64) {
        let to_end = area::RING_BYTES - self.tail % area::RING_BYTES;
        if bytes > to_end {
            self.write(&message(
                &Pad {},
                &vec![0xee; to_end as usize - size_of::<Header>()],
                self.number as u32 + 1,
            ));
            self.number += 1;
        }
    }

    /// Writes bytes to the ring as soon as there is room, without publishing them. They need not be a
    /// message.
    pub fn write(&mut self, bytes: &[u8]) {
        let length = bytes.len() as u64;
        if self.tail + length - self.head > area::RING_BYTES {
            until("space in the ring", || self.tail + length - self.head() <= area::RING_BYTES);
            self.head = self.head();
        }
        self.function.put(self.area + area::RING + self.tail % area::RING_BYTES, bytes);
        self.tail += length;
    }

    /// Stores the tail and rings the doorbell if the host sleeps.
    pub fn publish(&self) {
        self.publish_tail(self.tail);
    }

    /// Stores `tail`, which need not be valid, and rings the doorbell if the host sleeps.
    pub fn publish_tail(&self, tail: u64) {
        self.function.u64_at(self.area + area::SUBMIT + area::SUBMIT_TAIL).store(tail, Ordering::Release);
        fence(Ordering::SeqCst);
        let sleeps = self.function.u32_at(self.returns() + area::RETURN_HOST_SLEEPS);
        if sleeps.load(Ordering::Relaxed) != 0 {
            self.function.write(channel::base(self.channel) + channel::DOORBELL, 1);
        }
    }

    /// Sends a message and returns its number.
    pub fn send<P: Payload>(&mut self, body: &P, tail: &[u8]) -> u64 {
        let bytes = message(body, tail, 0).len() as u64;
        self.room(bytes);
        self.number += 1;
        let bytes = message(body, tail, self.number as u32);
        self.write(&bytes);
        self.publish();
        self.number
    }

    /// Sends a message whose bytes are already encoded, such as an invalid one, with the next number.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> u64 {
        self.room(bytes.len() as u64);
        self.number += 1;
        self.write(bytes);
        self.publish();
        self.number
    }

    /// Sends a message in slot `slot` and waits for its answer.
    pub fn call_in<P: RoundTrip>(&mut self, slot: u32, mut body: P, tail: &[u8]) -> (u32, Vec<u8>) {
        body.set_reply(slot);
        let number = self.send(&body, tail);
        self.answer(slot, number)
    }

    /// Sends a message in slot 1 and waits for its answer.
    pub fn call<P: RoundTrip>(&mut self, body: P, tail: &[u8]) -> (u32, Vec<u8>) {
        self.call_in(1, body, tail)
    }

    /// Waits for the answer to message `number`.
    pub fn answer(&self, slot: u32, number: u64) -> (u32, Vec<u8>) {
        let at = self.returns() + area::RETURN_REPLIES + u64::from(slot) * area::REPLY_BYTES;
        let ticket = self.function.u64_at(at + area::REPLY_TICKET);
        until("an answer", || ticket.load(Ordering::Acquire) == number);
        let status = self.function.u32_at(at + area::REPLY_STATUS).load(Ordering::Relaxed);
        let bytes = self.function.u32_at(at + area::REPLY_LEN).load(Ordering::Relaxed);
        (status, self.function.get(at + area::REPLY_DATA, bytes.into()))
    }

    fn word_at(&self, word: u32) -> u64 {
        self.returns() + area::RETURN_WORDS + u64::from(word) * area::WORD_BYTES
    }

    /// Returns the value of a completion word.
    pub fn word(&self, word: u32) -> u64 {
        self.function.u64_at(self.word_at(word) + area::WORD_VALUE).load(Ordering::Acquire)
    }

    /// Returns when a completion word was last stored, in nanoseconds of the device's clock.
    pub fn word_time(&self, word: u32) -> u64 {
        self.function.u64_at(self.word_at(word) + area::WORD_TIME).load(Ordering::Relaxed)
    }

    /// Stores the number of the newest hold that the guest has released.
    pub fn store_release(&self, hold: u32) {
        let word = self.function.u32_at(self.area + area::SUBMIT + area::SUBMIT_RELEASED);
        word.store(hold, Ordering::Release);
    }

    /// Spins until a completion word has reached `value`.
    pub fn wait_word(&self, word: u32, value: u64) {
        until("a word", || self.word(word) >= value);
    }

    /// Waits for a completion word as a guest that does not spin: it counts itself as a sleeper and sleeps on
    /// the futex. Returns how often it slept.
    pub fn sleep_for_word(&self, word: u32, value: u64) -> u32 {
        let wake = self.function.u32_at(self.returns() + area::RETURN_WAKE);
        let sleepers = self.function.u32_at(self.area + area::SUBMIT + area::SUBMIT_SLEEPERS);
        let mut sleeps = 0;
        sleepers.store(1, Ordering::SeqCst);
        loop {
            let before = wake.load(Ordering::SeqCst);
            fence(Ordering::SeqCst);
            if self.word(word) >= value {
                sleepers.store(0, Ordering::SeqCst);
                return sleeps;
            }
            sleeps += 1;
            let limit = futex::Timespec { tv_sec: 60, tv_nsec: 0 };
            let slept = futex::wait(wake, futex::Flags::empty(), before, Some(&limit));
            assert_ne!(slept, Err(rustix::io::Errno::TIMEDOUT), "nobody woke the guest");
        }
    }

    /// Waits until the session has ended, and returns the error that it ended with.
    pub fn ended(&self) -> Late {
        until("the session's end", || {
            self.late().is_some_and(|(_, flags, _)| flags & area::ERROR_ENDED != 0)
        });
        until("the state's change", || self.register(channel::STATE) == channel::STATE_FAILED);
        self.late().expect("a late error")
    }
}

/// Encodes a message with its header, its tail and the padding.
pub fn message<P: Payload>(body: &P, tail: &[u8], number: u32) -> Vec<u8> {
    let bytes = padded((size_of::<Header>() + size_of_val(body) + tail.len()) as u64);
    let header = Header { kind: P::KIND as u16, flags: 0, bytes: bytes as u32, number, join: 0 };
    let mut message = Vec::with_capacity(bytes as usize);
    message.extend_from_slice(header.as_bytes());
    message.extend_from_slice(body.as_bytes());
    message.extend_from_slice(tail);
    message.resize(bytes as usize, 0);
    message
}
