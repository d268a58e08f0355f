//! Cuts off the network: a namespace that holds nothing but a loopback device of its own.

use std::io;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Numbers of the kernel's interface (`linux/rtnetlink.h`, `linux/netlink.h`, `linux/if.h`).
const RTM_NEWLINK: u16 = 16;
const NLM_F_REQUEST_AND_ACK: u16 = 1 | 4;
const NLMSG_ERROR: u16 = 2;
const IFF_UP: u32 = 1;

/// The loopback device is the first of each namespace.
const LOOPBACK: u32 = 1;

/// Header and body of the one message that is sent.
const MESSAGE_BYTES: usize = 32;

/// Moves this process into a network of its own. Its processes reach each other through the loopback device, and nobody
/// else.
pub(crate) fn leave() -> io::Result<()> {
    // SAFETY: the flags do not include `FILES`, which is what makes the call unsafe.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
    start_loopback()
}

/// The device is there in a new namespace, and off.
fn start_loopback() -> io::Result<()> {
    // Without a protocol's number it speaks with what routes.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    sendto(&socket, &message(), SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut answer = [0; 256];
    let (_, count) = recv(&socket, &mut answer[..], RecvFlags::empty())?;
    let word = |at: usize| answer.get(at..at + 4).filter(|_| at + 4 <= count)?.try_into().ok().map(i32::from_ne_bytes);
    let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
    match (kind, word(16)) {
        (Some(NLMSG_ERROR), Some(0)) => Ok(()),
        (Some(NLMSG_ERROR), Some(error)) => Err(io::Error::from_raw_os_error(error.saturating_neg())),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// "Set the flag that the loopback device is up": `nlmsghdr`, then `ifinfomsg`.
fn message() -> [u8; MESSAGE_BYTES] {
    let mut bytes = [0; MESSAGE_BYTES];
    let mut put = |at: usize, value: &[u8]| {
        if let Some(place) = bytes.get_mut(at..at + value.len()) {
            place.copy_from_slice(value);
        }
    };
    put(0, &(MESSAGE_BYTES as u32).to_ne_bytes());
    put(4, &RTM_NEWLINK.to_ne_bytes());
    put(6, &NLM_F_REQUEST_AND_ACK.to_ne_bytes());
    put(8, &1_u32.to_ne_bytes());
    put(20, &LOOPBACK.to_ne_bytes());
    put(24, &IFF_UP.to_ne_bytes());
    put(28, &IFF_UP.to_ne_bytes());
    bytes
}
