//! What the program reads of an id's addresses and path, in the id itself.

use rnic_nic::cm::PathRecord;

use super::address;
use super::devices;
use super::id::IdObject;
use crate::c::cm::ibv_sa_path_rec;
use crate::c::ibv_gid;
use crate::export::seam::Result;

/// `IB_PATH_GMP`, `IB_PATH_PRIMARY` and `IB_PATH_BIDIRECTIONAL` of `<infiniband/sa.h>`: the flags
/// of the kernel's one path, which librdmacm gives as its preference.
const PATH_FLAGS: u8 = 1 | 1 << 1 | 1 << 3 | 1 << 5;
/// "Exactly", of the selectors of a path record.
const EXACTLY: u8 = 2;

/// Reads what is known of an id's way into the fields that programs read. An id that is found to be
/// on the device has `verbs` and the default protection domain from then on.
pub fn refresh(id: &IdObject) -> Result<()> {
    let route = id.nic().route()?;
    let missing = route.on_device && id.state().device.is_none();
    let joined = match missing {
        true => Some(devices::join()?),
        false => None,
    };
    let c = id.c();
    let mut state = id.state();
    // SAFETY: plain fields of a live id, which the program's threads do not use while a call or
    // event changes them.
    unsafe {
        let addr = &raw mut (*c).route.addr;
        if let Some(local) = route.local {
            (*addr).src_storage = address::to_c(local);
        }
        if let Some(peer) = route.peer {
            (*addr).dst_storage = address::to_c(peer);
        }
        (*addr).addr.sgid = ibv_gid { raw: route.sgid.0 };
        (*addr).addr.dgid = ibv_gid { raw: route.dgid.0 };
        if let Some(device) = joined {
            (*c).verbs = device.context;
            (*c).pd = device.pd;
            (*c).port_num = route.port_num;
            (*addr).addr.pkey = route.pkey.to_be();
            if let Some(other) = state.device.replace(device) {
                devices::leave(&other);
            }
        }
        if let Some(path) = &route.path {
            let path = path_to_c(path);
            let place = match &mut state.path {
                // Where programs have seen it.
                Some(place) => {
                    **place = path;
                    place
                }
                none => none.insert(Box::new(path)),
            };
            (*c).route.path_rec = &raw mut **place;
            (*c).route.num_paths = 1;
        }
    }
    Ok(())
}

fn path_to_c(path: &PathRecord) -> ibv_sa_path_rec {
    ibv_sa_path_rec {
        dgid: ibv_gid { raw: path.dgid.0 },
        sgid: ibv_gid { raw: path.sgid.0 },
        dlid: 0,
        slid: 0,
        raw_traffic: 0,
        flow_label: path.flow_label.to_be(),
        hop_limit: path.hop_limit,
        traffic_class: path.traffic_class,
        reversible: 1,
        numb_path: 1,
        pkey: path.pkey.to_be(),
        sl: path.sl,
        mtu_selector: EXACTLY,
        mtu: path.mtu.to_ibv() as u8,
        rate_selector: EXACTLY,
        rate: path.rate,
        packet_life_time_selector: EXACTLY,
        packet_life_time: path.packet_life_time,
        preference: PATH_FLAGS,
    }
}
