//! Finds the processes that listen at a TCP address: listening sockets as `/proc/PID/net/tcp` and `tcp6` list
//! them for the process's network namespace, and the processes that have them open.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

/// Value of the column `st` for a listening socket (`TCP_LISTEN`).
const LISTEN: &str = "0A";

/// A listening TCP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Address that the socket is bound to.
    pub address: SocketAddr,
    /// User id of the socket's owner.
    pub user: u32,
    /// Inode number of the socket, which the links in `/proc/PID/fd` contain.
    pub inode: u64,
}

/// Returns the listening sockets in the network namespace of a process (`self`, or its id).
///
/// # Errors
///
/// Fails if the process has ended or if its network namespace may not be read.
pub fn listeners(proc: &Path, process: &str) -> io::Result<Vec<Listener>> {
    let folder = proc.join(process).join("net");
    let mut found = read(&std::fs::read_to_string(folder.join("tcp"))?);
    match std::fs::read_to_string(folder.join("tcp6")) {
        Ok(text) => found.extend(read(&text)),
        // A kernel without IPv6.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    Ok(found)
}

/// Returns the inode numbers of the sockets that a process has open.
///
/// # Errors
///
/// Fails with `PermissionDenied` if this user may not read them, and otherwise if the process has ended.
pub fn sockets(proc: &Path, pid: u32) -> io::Result<Vec<u64>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(proc.join(pid.to_string()).join("fd"))? {
        // A descriptor may be closed in the meantime.
        let Ok(target) = std::fs::read_link(entry?.path()) else { continue };
        let inode = target.to_str().and_then(|name| name.strip_prefix("socket:[")?.strip_suffix(']'));
        found.extend(inode.and_then(|inode| inode.parse::<u64>().ok()));
    }
    Ok(found)
}

/// Processes that have a given socket open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owners {
    /// Process ids of the owners.
    pub processes: Vec<u32>,
    /// Whether the sockets of some processes could not be read for lack of permission.
    pub refused: bool,
}

/// Finds the processes among `pids` that have the socket `inode` open.
pub fn owners(proc: &Path, pids: &[u32], inode: u64) -> Owners {
    let mut owners = Owners::default();
    for &pid in pids {
        match sockets(proc, pid) {
            Ok(sockets) if sockets.contains(&inode) => owners.processes.push(pid),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => owners.refused = true,
            // It has ended.
            Ok(_) | Err(_) => {}
        }
    }
    owners
}

/// Returns the socket that accepts connections to `address`: the one bound to exactly that address, otherwise
/// one bound to all addresses of its family, otherwise one bound to all addresses of both families.
pub fn answering(listeners: &[Listener], address: SocketAddr) -> Option<&Listener> {
    let all = |ip: IpAddr| {
        let wanted = SocketAddr::new(ip, address.port());
        listeners.iter().find(move |listener| listener.address == wanted)
    };
    let mapped = match address.ip() {
        IpAddr::V4(ip) => Some(IpAddr::V6(ip.to_ipv6_mapped())),
        IpAddr::V6(_) => None,
    };
    let any_v4 = address.is_ipv4().then_some(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    let ways = [Some(address.ip()), mapped, any_v4, Some(IpAddr::V6(Ipv6Addr::UNSPECIFIED))];
    ways.into_iter().flatten().find_map(all)
}

fn read(text: &str) -> Vec<Listener> {
    text.lines().skip(1).filter_map(row).collect()
}

/// Parses a row such as `0: 0100007F:2CAA 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 123 1
/// ...`: local and remote address, state, queues, timer, retransmissions, user, timeout, inode.
fn row(line: &str) -> Option<Listener> {
    let mut words = line.split_ascii_whitespace().skip(1);
    let (local, _, state) = (words.next()?, words.next()?, words.next()?);
    let user = words.nth(3)?.parse().ok()?;
    let inode = words.nth(1)?.parse().ok()?;
    let address = endpoint(local)?;
    (state == LISTEN).then_some(Listener { address, user, inode })
}

/// Parses `ADDRESS:PORT` in hexadecimal. The address is printed as 32-bit words in this machine's byte order,
/// the port as a number.
fn endpoint(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word =
        |at: usize| Some(u32::from_str_radix(address.get(at * 8..at * 8 + 8)?, 16).ok()?.to_ne_bytes());
    let ip = match address.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (at, part) in bytes.chunks_exact_mut(4).enumerate() {
                part.copy_from_slice(&word(at)?);
            }
            IpAddr::V6(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use proptest::prelude::*;

    use super::*;

    const HEAD: &str =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";

    fn line(address: &str, state: &str, inode: u64) -> String {
        format!(
            "   0: {address} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000  1000        0 {inode} 1 0000000000000000 100 0 0 10 0\n"
        )
    }

    #[test]
    fn only_what_listens() {
        let text = HEAD.to_owned() + &line("0100007F:2CAA", "0A", 7) + &line("0100007F:2CAB", "01", 8);
        let listener = Listener { address: "127.0.0.1:11434".parse().unwrap(), user: 1000, inode: 7 };
        assert_eq!(read(&text), [listener]);
        let text = HEAD.to_owned() + &line("00000000000000000000000001000000:2CAA", "0A", 9);
        assert_eq!(read(&text)[0].address, "[::1]:11434".parse().unwrap());
    }

    #[test]
    fn the_most_particular_socket_answers() {
        let listener = |address: &str, inode| Listener { address: address.parse().unwrap(), user: 0, inode };
        let all = [
            listener("[::]:5", 1),
            listener("0.0.0.0:5", 2),
            listener("127.0.0.1:5", 3),
            listener("127.0.0.1:6", 4),
            listener("[::ffff:127.0.0.2]:5", 5),
        ];
        let who = |from: usize, address: &str| {
            answering(&all[from..], address.parse().unwrap()).map(|found| found.inode)
        };
        assert_eq!(who(0, "127.0.0.1:5"), Some(3));
        assert_eq!(who(0, "127.0.0.2:5"), Some(5));
        assert_eq!(who(0, "127.0.0.3:5"), Some(2));
        assert_eq!(who(0, "[::1]:5"), Some(1));
        assert_eq!(who(1, "[::1]:5"), None);
        assert_eq!(answering(&all[..1], "127.0.0.1:5".parse().unwrap()).map(|found| found.inode), Some(1));
    }

    #[test]
    fn this_process_listens_where_it_does() {
        let proc = Path::new("/proc");
        let own = std::process::id();
        for bound in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0"] {
            // A system without IPv6.
            let Ok(socket) = TcpListener::bind(bound) else { continue };
            let address = socket.local_addr().unwrap();
            let all = listeners(proc, "self").unwrap();
            let found = answering(&all, address).unwrap();
            assert_eq!(found.address, address);
            assert_eq!(owners(proc, &[own], found.inode).processes, [own], "{bound}");
        }
        assert_eq!(owners(proc, &[own], 0), Owners::default());
    }

    proptest! {
        #[test]
        fn addresses_are_read_as_the_kernel_writes_them(bytes: [u8; 16], short: [u8; 4], port: u16) {
            let words = |bytes: &[u8]| -> String {
                let word = |part: &[u8]| format!("{:08X}", u32::from_ne_bytes(part.try_into().unwrap()));
                bytes.chunks_exact(4).map(word).collect::<Vec<_>>().concat()
            };
            let long = SocketAddr::new(Ipv6Addr::from(bytes).into(), port);
            prop_assert_eq!(endpoint(&format!("{}:{port:04X}", words(&bytes))), Some(long));
            let short_one = SocketAddr::new(Ipv4Addr::from(short).into(), port);
            prop_assert_eq!(endpoint(&format!("{}:{port:04X}", words(&short))), Some(short_one));
        }

        #[test]
        fn no_table_breaks_the_reader(text in "[ 0-9A-F:\\n]{0,200}", other in ".{0,40}") {
            let _ = read(&text);
            let _ = read(&format!("{HEAD}{other}\n{text}"));
        }
    }
}
