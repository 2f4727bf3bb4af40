//! Registers of the simulated bus, whose `resource0` is a UNIX `SOCK_SEQPACKET` socket.
//!
//! The packets are those of [`vgpu_wire::sim_bus`]. Several accesses in one packet cost one wake-up of the
//! device. One connection serves a process. Packets may be sent before earlier ones are answered: a doorbell
//! is not waited for.
//!
//! The socket is connected when it is first needed: registers without side effects are read from a file
//! beside it ([`crate::page`]).

use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use vgpu_wire::pci::PciAddress;
use vgpu_wire::sim_bus::{self, ANSWER_BYTES, BATCH};

use crate::log_hook::{Notice, notify};
use crate::page::{Page, Values};
use crate::registers::{Access, RegisterError, Registers, check_home};
use crate::sim_connection::Connection;

/// Maximum number of doorbells whose answers have not been received yet.
const OWED_MAX: u32 = 16;

/// The registers of a simulated device.
#[derive(Debug)]
pub struct SimRegisters {
    function: PciAddress,
    path: PathBuf,
    page: Option<Page>,
    connection: Mutex<Option<Connection>>,
}

impl SimRegisters {
    /// Creates the registers behind the socket at `path`, whose page is already open.
    pub(crate) fn with_page(function: PciAddress, path: PathBuf, page: Page) -> Self {
        Self { function, path, page: Some(page), connection: Mutex::new(None) }
    }

    /// Creates the registers of a device without a page, and connects to the socket.
    pub(crate) fn connect(function: PciAddress, path: PathBuf) -> io::Result<Self> {
        let connection = Mutex::new(Some(Connection::new(&path)?));
        Ok(Self { function, path, page: None, connection })
    }

    /// Creates the registers of a BAR without a page that may never be used. The first access connects.
    pub fn unconnected(function: PciAddress, path: PathBuf) -> Self {
        Self { function, path, page: None, connection: Mutex::new(None) }
    }

    /// Sends a packet of one request and waits for its answer, which is as long as `answer`.
    ///
    /// # Errors
    /// Fails if the device is gone, or its status is not success.
    pub fn exchange(&self, packet: &[u8], answer: &mut [u8]) -> Result<(), RegisterError> {
        check_home()?;
        let mut connection = self.lock();
        let connection = self.connected(&mut connection)?;
        connection.send(packet)?;
        connection.answer(self.function, answer)?;
        match u32::from_le_bytes([answer[0], answer[1], answer[2], answer[3]]) {
            sim_bus::DONE => Ok(()),
            status => Err(RegisterError::Refused(status)),
        }
    }

    /// Answers a group of accesses from the page. Returns false if some are not reads of registers on the
    /// page, or if there is no page.
    fn read_page(&self, accesses: &[Access], values: &mut [u32]) -> Result<bool, RegisterError> {
        let on_page = |access: &Access| matches!(*access, Access::Read(offset) if Page::contains(offset));
        let Some(page) = self.page.as_ref().filter(|_| accesses.iter().all(on_page)) else {
            return Ok(false);
        };
        let mut registers = Values::new();
        if !page.read(&mut registers).map_err(RegisterError::Closed)? {
            return Ok(false);
        }
        for (access, value) in accesses.iter().zip(values) {
            if let Access::Read(offset) = *access {
                *value = registers.at(offset);
            }
        }
        Ok(true)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Connection>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connects if there is no connection yet, and reconnects if the program has closed the descriptor or
    /// reused its number.
    fn connected<'a>(
        &self,
        connection: &'a mut Option<Connection>,
    ) -> Result<&'a mut Connection, RegisterError> {
        if connection.as_ref().is_some_and(|connection| !connection.descriptor.intact()) {
            *connection = None;
            notify(&Notice::Reopened { function: self.function });
        }
        match connection {
            Some(connection) => Ok(connection),
            none => Ok(none.insert(Connection::new(&self.path).map_err(RegisterError::Closed)?)),
        }
    }
}

impl Registers for SimRegisters {
    fn access(&self, accesses: &[Access], values: &mut [u32]) -> Result<(), RegisterError> {
        check_home()?;
        debug_assert!(accesses.len() <= BATCH, "a batch fits the socket's buffers");
        if self.read_page(accesses, values)? {
            return Ok(());
        }
        let mut connection = self.lock();
        let connection = self.connected(&mut connection)?;
        connection.request(accesses)?;
        let mut doorbell = [0; ANSWER_BYTES];
        while connection.owed > 0 {
            connection.answer(self.function, &mut doorbell)?;
            connection.owed -= 1;
        }
        let mut answers = [0; BATCH * ANSWER_BYTES];
        let answers = &mut answers[..accesses.len() * ANSWER_BYTES];
        connection.answer(self.function, answers)?;
        let mut failed = None;
        for (result, answer) in values.iter_mut().zip(answers.chunks_exact(ANSWER_BYTES)) {
            let [status, value] = [0, 4]
                .map(|at| u32::from_le_bytes([answer[at], answer[at + 1], answer[at + 2], answer[at + 3]]));
            match status {
                sim_bus::DONE => *result = value,
                status => failed = Some(status),
            }
        }
        failed.map_or(Ok(()), |status| Err(RegisterError::Refused(status)))
    }

    fn post(&self, offset: u32, value: u32, still: &dyn Fn() -> bool) -> Result<bool, RegisterError> {
        check_home()?;
        let mut connection = self.lock();
        // The thread that held the lock before may have done this already.
        if !still() {
            return Ok(false);
        }
        let connection = self.connected(&mut connection)?;
        let mut answer = [0; ANSWER_BYTES];
        while connection.owed > 0 {
            if connection.owed >= OWED_MAX {
                connection.answer(self.function, &mut answer)?;
            } else if !connection.receive(&mut answer, libc::MSG_DONTWAIT)? {
                break;
            }
            connection.owed -= 1;
        }
        connection.request(&[Access::Write(offset, value)])?;
        connection.owed += 1;
        Ok(true)
    }

    fn write_within(&self, offset: u32, value: u32, limit: Duration) -> Result<(), RegisterError> {
        check_home()?;
        let end = Instant::now() + limit;
        let mut connection = loop {
            match self.connection.try_lock() {
                Ok(connection) => break connection,
                Err(TryLockError::Poisoned(poisoned)) => break poisoned.into_inner(),
                // Another thread waits for an answer that does not come.
                Err(TryLockError::WouldBlock) if Instant::now() >= end => {
                    return Err(RegisterError::TimedOut);
                }
                Err(TryLockError::WouldBlock) => std::thread::yield_now(),
            }
        };
        let connection = self.connected(&mut connection)?;
        connection.request(&[Access::Write(offset, value)])?;
        connection.owed += 1;
        let mut answer = [0; ANSWER_BYTES];
        while connection.owed > 0 {
            let left = end.saturating_duration_since(Instant::now());
            if !connection.readable_within(left) {
                return Err(RegisterError::TimedOut);
            }
            if connection.receive(&mut answer, libc::MSG_DONTWAIT)? {
                connection.owed -= 1;
            }
        }
        Ok(())
    }
}
