//! The guest's memory as the GPU reaches it: each range that the session was granted is registered with the
//! driver when a copy first names it, and copies go there without the processor. Where the driver refuses
//! that, they go through buffers ([`staging`](super::staging)).

use std::collections::BTreeMap;
use std::sync::Arc;

use vgpu_abi::CUresult;
use vgpu_device::{Grant, Piece, Retired, SessionHost};

use crate::driver::context::Context;
use crate::driver::error::DriverError;
use crate::driver::host::Registered;

/// Where a piece of the guest's memory is.
#[derive(Debug)]
pub(crate) enum Place {
    /// At this offset of registered memory.
    Registered(Arc<Registered>, u64),
    /// In memory that the driver does not register.
    Pageable,
}

/// The registrations of a session.
#[derive(Debug)]
pub(crate) struct HostMemory {
    host: SessionHost,
    /// By address in this process. `None`: the driver refused.
    grants: BTreeMap<usize, Option<Arc<Registered>>>,
}

impl HostMemory {
    /// Nothing is registered.
    pub(crate) const fn new(host: SessionHost) -> Self {
        Self { host, grants: BTreeMap::new() }
    }

    /// Where a piece is; registers the range that it lies in if this is its first use.
    pub(crate) fn place(&mut self, context: &Arc<Context>, piece: &Piece) -> Result<Place, DriverError> {
        let Some((grant, offset)) = self.host.grant(piece) else { return Ok(Place::Pageable) };
        let registered = self.registered(context, grant)?;
        Ok(registered.map_or(Place::Pageable, |registered| Place::Registered(registered, offset)))
    }

    /// The registration of a whole range. `None`: the driver refuses it.
    pub(crate) fn registered(
        &mut self,
        context: &Arc<Context>,
        grant: Grant,
    ) -> Result<Option<Arc<Registered>>, DriverError> {
        let address = grant.address();
        if let Some(known) = self.grants.get(&address) {
            return Ok(known.clone());
        }
        let bytes = grant.bytes();
        let registered = match Registered::register(context, grant) {
            Ok(registered) => Some(Arc::new(registered)),
            Err(error) if error.loses_context() => return Err(error),
            Err(error) => {
                let session = self.host.session();
                let first = self.grants.values().all(Option::is_some);
                // CUDA says not-supported of memory that it never registers, and so would it again.
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

    /// The guest gives memory back. What is returned ends its registrations and then gives it to whoever asks
    /// next, when it is dropped: no work may use it any more.
    pub(crate) fn retire(&mut self, memory: Retired) -> Leaving {
        let registered = memory.addresses().into_iter().filter_map(|at| self.grants.remove(&at)?).collect();
        Leaving { _registered: registered, _memory: memory }
    }
}

/// Memory that the guest gives back, with its registrations, which are dropped first.
#[derive(Debug)]
pub(crate) struct Leaving {
    _registered: Vec<Arc<Registered>>,
    _memory: Retired,
}
