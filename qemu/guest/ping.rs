//! ICMP echo requests over the first network device.

use crate::system::{Outcome, check, text};
use std::fs;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::raw::{c_char, c_int, c_ulong, c_void};
use std::time::Duration;

unsafe extern "C" {
    fn socket(family: c_int, kind: c_int, protocol: c_int) -> c_int;
    fn ioctl(file: c_int, request: c_ulong, argument: *mut c_void) -> c_int;
}

const AF_INET: u16 = 2;
const SOCK_DGRAM: c_int = 2;
const IPPROTO_ICMP: c_int = 1;
const SIOCSIFFLAGS: c_ulong = 0x8914;
const SIOCSIFADDR: c_ulong = 0x8916;
const SIOCSIFNETMASK: c_ulong = 0x891c;
const IFF_UP: u32 = 1;
/// Longer than any answer takes on a busy host.
const PATIENCE: Duration = Duration::from_secs(20);
/// Header (type, code, checksum, identifier, sequence number), and the number of the request.
const LENGTH: usize = 8 + 8;
const ECHO: u8 = 8;

/// `struct ifreq` of linux/if.h, with an address or with flags.
#[repr(C)]
struct Request {
    name: [c_char; 16],
    family_or_flags: u16,
    port: u16,
    address: [u8; 4],
    rest: [u8; 16],
}

/// Sets up eth0 as 10.77.0.100/24, and lets this process send echo requests.
pub(crate) fn prepare() -> Outcome<()> {
    let control = text("a socket", UdpSocket::bind("0.0.0.0:0"))?;
    let set = |what: &str, request: c_ulong, family_or_flags: u16, address: [u8; 4]| {
        let mut name = [0; 16];
        name.iter_mut().zip(b"eth0").for_each(|(to, &from)| *to = from as c_char);
        let mut argument = Request { name, family_or_flags, port: 0, address, rest: [0; 16] };
        // SAFETY: the argument is as large as the largest `struct ifreq` and lives during the call.
        check(what, unsafe { ioctl(control.as_raw_fd(), request, (&raw mut argument).cast()) } == 0)
    };
    set("eth0's address", SIOCSIFADDR, AF_INET, [10, 77, 0, 100])?;
    set("eth0's netmask", SIOCSIFNETMASK, AF_INET, [255, 255, 255, 0])?;
    set("eth0 up", SIOCSIFFLAGS, IFF_UP as u16, [0; 4])?;
    text("ping_group_range", fs::write("/proc/sys/net/ipv4/ping_group_range", "0 0"))
}

/// Sends `count` requests to the CPU's own address of the host, `depth` at a time, and takes the answers: each once. Each
/// address is a flow of its own, which the host answers on the queue on which it came.
pub(crate) fn ping(cpu: usize, count: usize, depth: usize) -> Outcome<usize> {
    // SAFETY: makes a socket; the kernel fills in the identifier and the checksum of its messages.
    let file = unsafe { socket(AF_INET.into(), SOCK_DGRAM, IPPROTO_ICMP) };
    check("an ICMP socket", file >= 0)?;
    // SAFETY: the socket was just made and nobody else has it. It is a datagram socket.
    let socket = unsafe { UdpSocket::from_raw_fd(file) };
    text("connect", socket.connect((format!("10.77.0.{}", cpu + 1), 0)))?;
    text("time-out", socket.set_read_timeout(Some(PATIENCE)))?;
    let mut answered = vec![false; count];
    let mut sent = 0;
    for done in 0..count {
        while sent < count && sent < done + depth {
            let mut message = [0; LENGTH];
            message[0] = ECHO;
            message[6..8].copy_from_slice(&(sent as u16).to_be_bytes());
            message[8..].copy_from_slice(&(sent as u64).to_be_bytes());
            text("send", socket.send(&message))?;
            sent += 1;
        }
        let mut message = [0; LENGTH + 1];
        let length = text(&format!("CPU {cpu}: answer {done} of {count}"), socket.recv(&mut message))?;
        check("an answer of another length", length == LENGTH)?;
        let number = u64::from_be_bytes(message[8..LENGTH].try_into().expect("eight bytes")) as usize;
        check(&format!("answer {number} to a request that was not sent"), number < sent)?;
        check(&format!("answer {number} came twice"), !std::mem::replace(&mut answered[number], true))?;
    }
    Ok(count)
}
