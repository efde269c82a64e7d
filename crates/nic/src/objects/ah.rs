//! Address handles: where datagrams go (`ibv_create_ah(3)`).

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rnic_link::shortage;
use rnic_transport::Address;
use rnic_wire::{Gid, UdPrefix};

use crate::addressing::address::{AhAttr, address_vector};
use crate::addressing::gid_table::{GidEntry, gid_table};
use crate::engine::AhNumber;
use crate::error::{self, Error, Result};
use crate::objects::pd::Pd;
use crate::observe::lint;

/// An address handle. Destroyed when the last clone is dropped; work requests that are queued by
/// then still go where it pointed.
#[derive(Clone, Debug)]
pub struct Ah {
    shared: Arc<AhShared>,
}

#[derive(Debug)]
struct AhShared {
    pd: Pd,
    number: AhNumber,
}

impl Pd {
    /// Makes an address handle.
    ///
    /// # Errors
    /// EINVAL for an address without GID, of an unknown GID index, or of another kind than that
    /// GID; EHOSTUNREACH if no way leads there.
    pub fn create_ah(&self, attr: &AhAttr) -> Result<Ah> {
        const VERB: &str = "ibv_create_ah";
        if attr.port_num != 1 {
            return Err(Error::invalid(
                VERB,
                format!("port_num is {}, the device has port 1", attr.port_num),
            ));
        }
        let nic = &self.context().shared.nic;
        // Read before the engine is locked: that takes system calls.
        let table = nic.host().gid_table();
        nic.check_alive(VERB)?;
        let mut engine = nic.lock();
        let vector = address_vector(VERB, attr, 0, &table, engine.link.lid())?;
        if let Err(error) = engine.link.has_way(&vector) {
            // What else there is says nothing of the way.
            return Err(match shortage(&error) {
                Some(_) => error::os(VERB, "a socket to find the way", &error),
                None => Error::new(
                    VERB,
                    libc::EHOSTUNREACH,
                    format!(
                        "no way leads from {} to {}",
                        vector.local(),
                        vector.remote()
                    ),
                ),
            });
        }
        let remote = vector.remote();
        let room = engine.ahs.try_reserve();
        room.map_err(|_| error::no_memory(VERB))?;
        let number = engine.ahs.insert(vector, self.shared.id).ok_or_else(|| {
            Error::new(
                VERB,
                libc::ENOMEM,
                "the device's address handles are all in use",
            )
        })?;
        drop(engine);
        if lint::is_on() {
            lint::address_handle_made(attr.hop_limit, remote);
        }
        self.shared.users.fetch_add(1, Ordering::AcqRel);
        Ok(Ah {
            shared: Arc::new(AhShared {
                pd: self.clone(),
                number,
            }),
        })
    }
}

impl Ah {
    /// Queue pair `qpn` behind it, for [`rnic_transport::SendOp::Datagram`].
    pub fn address(&self, qpn: u32, qkey: u32) -> Address {
        Address {
            path: self.shared.number.0,
            qpn: qpn & 0xff_ffff,
            qkey,
        }
    }

    /// Its protection domain.
    pub fn pd(&self) -> &Pd {
        &self.shared.pd
    }
}

impl Drop for AhShared {
    fn drop(&mut self) {
        let nic = &self.pd.context().shared.nic;
        // In a forked child the engine is a dead copy.
        if nic.check_alive("ibv_destroy_ah").is_ok() {
            nic.lock().remove_ah(self.number);
        }
        self.pd.shared.users.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The address of whoever sent a datagram, of the 40 bytes in front of its payload
/// (`ibv_init_ah_from_wc(3)`).
///
/// # Errors
/// EINVAL if the bytes are no such header, or no GID of this host is the destination in it. That of
/// a multicast datagram is none: as with rdma-core, the program has to name its own GID then.
pub fn ah_attr_from_header(header: &[u8; UdPrefix::LEN], port_num: u8) -> Result<AhAttr> {
    ah_attr_from_header_of(header, port_num, &gid_table())
}

/// The same by the GID table of another device.
///
/// # Errors
/// See [`ah_attr_from_header`].
pub fn ah_attr_from_header_of(
    header: &[u8; UdPrefix::LEN],
    port_num: u8,
    table: &[GidEntry],
) -> Result<AhAttr> {
    const VERB: &str = "ibv_init_ah_from_wc";
    let prefix = UdPrefix::parse(header)
        .map_err(|_| Error::invalid(VERB, "the first 40 bytes of the receive are no GRH"))?;
    let (local, remote, flow_label, traffic_class, hop_limit) = match prefix {
        UdPrefix::V4(ip) => (ip.dst.into(), IpAddr::V4(ip.src), 0, ip.tos, ip.ttl),
        UdPrefix::None => return Err(Error::invalid(VERB, "the datagram came without a GRH")),
        UdPrefix::V6(grh) => (
            Gid(grh.dgid).ip(),
            Gid(grh.sgid).ip(),
            grh.flow_label,
            grh.traffic_class,
            grh.hop_limit,
        ),
    };
    if local.is_multicast() {
        return Err(Error::invalid(
            VERB,
            format!("the datagram came to the group {local}, which is no GID of this host"),
        ));
    }
    let source = table.iter().find(|e| e.addr == local).ok_or_else(|| {
        Error::invalid(
            VERB,
            format!("the datagram came to {local}, which is no GID of this host"),
        )
    })?;
    Ok(AhAttr {
        dgid: Gid::from(remote),
        flow_label,
        sgid_index: u8::try_from(source.index).map_err(|_| {
            Error::invalid(
                VERB,
                format!(
                    "row {} of the GID table is beyond what an address handle names",
                    source.index
                ),
            )
        })?,
        hop_limit,
        traffic_class,
        is_global: true,
        port_num,
        ..AhAttr::default()
    })
}

#[cfg(test)]
mod tests;
