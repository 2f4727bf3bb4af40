//! Brings the loopback interface up, as the first process of every system does. A kernel starts with it down,
//! and nothing can listen at 127.0.0.1 then.

use std::io;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};

/// Message that changes a link (`RTM_NEWLINK`).
const NEW_LINK: u16 = 16;
/// Message with the result of a request (`NLMSG_ERROR`).
const RESULT: u16 = 2;
/// Flags of a request that is to be answered (`NLM_F_REQUEST` and `NLM_F_ACK`).
const REQUEST: u16 = 1 | 4;
/// Number of bytes of a message's header, of which the first four are the length and the next two the kind.
const HEADER: usize = 16;
/// Number of bytes of the request: a header, and `struct ifinfomsg`, which has as many.
const LENGTH: u32 = 32;
/// Flag of a link that is up (`IFF_UP`).
const UP: u32 = 1;
/// Index of the loopback interface, which is the first of every network namespace.
const LOOPBACK: i32 = 1;

/// Brings the loopback interface up.
///
/// # Errors
/// Fails if the kernel refuses it.
pub fn bring_up() -> io::Result<()> {
    // Protocol 0 is NETLINK_ROUTE.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    sendto(&socket, &request(), SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut answer = [0; 256];
    let (bytes, _) = recv(&socket, &mut answer, RecvFlags::empty())?;
    result(&answer[..bytes])
}

/// Returns the message that changes the interface's flag: a header, then `struct ifinfomsg`.
fn request() -> Vec<u8> {
    let mut message = Vec::with_capacity(2 * HEADER);
    message.extend(LENGTH.to_ne_bytes());
    message.extend(NEW_LINK.to_ne_bytes());
    message.extend(REQUEST.to_ne_bytes());
    // Sequence number, port, family, padding and type, which the kernel does not need.
    message.extend([0; 12]);
    message.extend(LOOPBACK.to_ne_bytes());
    message.extend(UP.to_ne_bytes());
    // The flags to change.
    message.extend(UP.to_ne_bytes());
    message
}

/// Returns the result in the kernel's answer.
fn result(answer: &[u8]) -> io::Result<()> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    let kind = answer.get(4..6).ok_or_else(invalid)?;
    let number = answer.get(HEADER..HEADER + 4).ok_or_else(invalid)?;
    if kind != RESULT.to_ne_bytes() {
        return Err(invalid());
    }
    match i32::from_ne_bytes(number.try_into().map_err(|_| invalid())?) {
        0 => Ok(()),
        number => Err(io::Error::from_raw_os_error(-number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_and_its_answer() {
        let message = request();
        assert_eq!((message.len(), message[..4].to_vec()), (32, LENGTH.to_ne_bytes().to_vec()));
        assert_eq!(message[20..24], LOOPBACK.to_ne_bytes());
        let mut answer = [0; 36];
        answer[4..6].copy_from_slice(&RESULT.to_ne_bytes());
        assert!(result(&answer).is_ok());
        answer[16..20].copy_from_slice(&(-1i32).to_ne_bytes());
        assert_eq!(result(&answer).unwrap_err().raw_os_error(), Some(1));
        assert!(result(&answer[..5]).is_err() && result(&[0; 20]).is_err());
    }
}
