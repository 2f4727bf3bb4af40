//! The guest's memory as the GPU accesses it. Each granted range is registered with the driver when a copy
//! first names it, so that copies need no processor. Where the driver refuses, copies go through buffers
//! ([`staging`](super::staging)).

use std::collections::BTreeMap;
use std::sync::Arc;

use vgpu_abi::CUresult;
use vgpu_device::{Grant, ResolvedSpan, RetiredMemory, SessionHost};

use crate::driver::context::DriverContext;
use crate::driver::error::DriverError;
use crate::driver::host::RegisteredMemory;

/// Location of a piece of the guest's memory.
#[derive(Debug)]
pub(crate) enum GuestLocation {
    /// The piece is in registered memory, at this offset.
    Registered(Arc<RegisteredMemory>, u64),
    /// The piece is in memory that the driver does not register.
    Pageable,
}

/// The registrations of a session.
#[derive(Debug)]
pub(crate) struct HostMemory {
    host: SessionHost,
    /// Registrations by address in this process, or `None` where the driver refused.
    grants: BTreeMap<usize, Option<Arc<RegisteredMemory>>>,
}

impl HostMemory {
    /// Creates the state without registrations.
    pub(crate) const fn new(host: SessionHost) -> Self {
        Self { host, grants: BTreeMap::new() }
    }

    /// Locates a piece of the guest's memory. Registers its range on the first use.
    pub(crate) fn place(
        &mut self,
        context: &Arc<DriverContext>,
        piece: &ResolvedSpan,
    ) -> Result<GuestLocation, DriverError> {
        let Some((grant, offset)) = self.host.grant(piece) else { return Ok(GuestLocation::Pageable) };
        let registered = self.registered(context, grant)?;
        Ok(registered
            .map_or(GuestLocation::Pageable, |registered| GuestLocation::Registered(registered, offset)))
    }

    /// Returns the registration of a whole range, or `None` if the driver refuses it.
    pub(crate) fn registered(
        &mut self,
        context: &Arc<DriverContext>,
        grant: Grant,
    ) -> Result<Option<Arc<RegisteredMemory>>, DriverError> {
        let address = grant.address();
        if let Some(known) = self.grants.get(&address) {
            return Ok(known.clone());
        }
        let bytes = grant.bytes();
        let registered = match RegisteredMemory::register(context, grant) {
            Ok(registered) => Some(Arc::new(registered)),
            Err(error) if error.loses_context() => return Err(error),
            Err(error) => {
                let session = self.host.session();
                let first = self.grants.values().all(Option::is_some);
                // CUDA returns not-supported for memory that it never registers, so it need not be logged
                // again.
                if first || error.code != CUresult::NOT_SUPPORTED {
                    self.host.log(0, || {
                        tracing::warn!(session, bytes, "guest memory is copied through buffers: {error}");
                    });
                }
                None
            }
        };
        self.grants.insert(address, registered.clone());
        Ok(registered)
    }

    /// Removes memory from the session. Dropping the result unregisters the memory and passes it to the next
    /// owner. No work may use it by then.
    pub(crate) fn retire(&mut self, memory: RetiredMemory) -> Leaving {
        let registered = memory.addresses().into_iter().filter_map(|at| self.grants.remove(&at)?).collect();
        Leaving { _registered: registered, _memory: memory }
    }
}

/// Memory that leaves the session, with its registrations, which are dropped first.
#[derive(Debug)]
pub(crate) struct Leaving {
    _registered: Vec<Arc<RegisteredMemory>>,
    _memory: RetiredMemory,
}
