//! How full the receive buffers of port 4791 are, of all processes of this host.

use rnic_wire::ROCE_PORT;

use rnic_sys::{self as sys, Fd};

/// A look at the kernel's table of sockets.
#[derive(Debug)]
pub(crate) struct Backlog {
    table: Option<Fd>,
    text: Vec<u8>,
}

/// Most bytes of the table that are read: some hundred sockets.
const TABLE: usize = 64 * 1024;

impl Backlog {
    /// Of sockets of this family, which all processes of a host choose alike.
    pub(crate) fn new(v6: bool) -> Backlog {
        let path = if v6 {
            c"/proc/thread-self/net/udp6"
        } else {
            c"/proc/thread-self/net/udp"
        };
        Backlog {
            table: sys::open_at_following(path, libc::O_RDONLY, 0).ok(),
            text: Vec::new(),
        }
    }

    /// Bytes, book-keeping included, in the fullest buffer; 0 where the kernel does not tell.
    pub(crate) fn most(&mut self) -> usize {
        let Some(table) = &self.table else { return 0 };
        self.text.resize(TABLE, 0);
        let mut len = 0;
        // The kernel gives about a page at a time. Not by the standard library's read: that is a
        // cancellation point.
        while let Ok(n @ 1..) = sys::read_at(table, &mut self.text[len..], len as u64) {
            len += n;
        }
        most(&self.text[..len])
    }
}

fn most(table: &[u8]) -> usize {
    table
        .split(|&byte| byte == b'\n')
        .filter_map(waiting)
        .max()
        .unwrap_or(0)
}

/// The `rx_queue` of a line of /proc/net/udp (proc_net(5)), if the port is ours.
fn waiting(line: &[u8]) -> Option<usize> {
    let line = std::str::from_utf8(line).ok()?;
    let mut fields = line.split_ascii_whitespace();
    let (_, port) = fields.nth(1)?.rsplit_once(':')?;
    if u16::from_str_radix(port, 16).ok()? != ROCE_PORT {
        return None;
    }
    let (_, received) = fields.nth(2)?.split_once(':')?;
    usize::from_str_radix(received, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fullest_buffer_of_the_port_counts() {
        let table = b"\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
 1160: 00000000:12B7 00000000:0000 07 00000000:00000300 00:00000000 00000000     0        0 1 2 0 0
 1161: 00000000:12B7 00000000:0000 07 00000000:00001400 00:00000000 00000000     0        0 2 2 0 0
 1162: 00000000:0035 00000000:0000 07 00000000:00FF0000 00:00000000 00000000     0        0 3 2 0 0
 1163: nonsense
";
        assert_eq!(most(table), 0x1400);
        assert_eq!(most(b""), 0);
    }

    #[test]
    fn the_sockets_of_the_threads_own_network_are_seen() {
        rnic_skip::in_another_namespace(|| {
            let receiver = std::net::UdpSocket::bind("0.0.0.0:0").expect("a port");
            let port = receiver.local_addr().expect("bound").port();
            let mut backlog = Backlog::new(false);
            backlog.most();
            let text = String::from_utf8_lossy(&backlog.text);
            assert!(text.contains(&format!(":{port:04X} ")), "{text}");
        });
    }

    #[test]
    fn what_waits_in_a_socket_shows() {
        let receiver = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
        let port = receiver.local_addr().expect("bound").port();
        receiver
            .send_to(&[0; 100], receiver.local_addr().expect("bound"))
            .expect("sent");
        let mut backlog = Backlog::new(false);
        backlog.most();
        let text = String::from_utf8_lossy(&backlog.text).into_owned();
        let ours = format!(":{port:04X} ");
        let line = text.lines().find(|l| l.contains(&ours)).expect("listed");
        let line = line.replacen(&ours, ":12B7 ", 1);
        assert!(waiting(line.as_bytes()).expect("a number") >= 100);
    }
}
