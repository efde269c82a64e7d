//! Our structures, scalars and constants against the installed headers, as the C compiler sees
//! them.

use crate::common;
use std::process::Command;

use crate::c::cm::{ALL as RDMA, *};
use crate::c::consts;
use crate::c::*;

/// An expression of C and its value here.
type Fact = (String, i64);

/// Sizes and offsets of whole structures; `field = "c.path"` where C spells it differently.
macro_rules! layouts {
    ($facts:ident; $($ty:ident { $($field:ident $(= $c:literal)?),* $(,)? })*) => {$(
        $facts.push((format!("sizeof(struct {})", stringify!($ty)), size_of::<$ty>() as i64));
        $(
            #[allow(unused_mut, unused_assignments, reason = "set where C has another name")]
            let mut c = stringify!($field).trim_start_matches("r#");
            $(c = $c;)?
            $facts.push((
                format!("offsetof(struct {}, {c})", stringify!($ty)),
                std::mem::offset_of!($ty, $field) as i64,
            ));
        )*
    )*};
}

trait Scalar {
    const SIGNED: bool;
}
impl Scalar for i32 {
    const SIGNED: bool = true;
}
macro_rules! unsigned {
    ($($ty:ty)*) => {$(impl Scalar for $ty { const SIGNED: bool = false; })*};
}
unsigned! { u8 u16 u32 u64 usize }

fn is_signed<S, T: Scalar>(_field: impl Fn(&S) -> &T) -> i64 {
    i64::from(T::SIGNED)
}

/// Size and signedness of scalar fields.
macro_rules! scalars {
    ($facts:ident; $($ty:ident { $($field:ident),* $(,)? })*) => {$($(
        let field = format!("((struct {} *)0)->{}", stringify!($ty), stringify!($field).trim_start_matches("r#"));
        $facts.push((
            format!("(__typeof__({field}))-1 < 0"),
            is_signed(|s: &$ty| &s.$field),
        ));
        $facts.push((
            format!("sizeof({field})"),
            size_of_field(|s: &$ty| &s.$field),
        ));
    )*)*};
}

fn size_of_field<S, T>(_field: impl Fn(&S) -> &T) -> i64 {
    size_of::<T>() as i64
}

fn structures() -> Vec<Fact> {
    let mut facts = Vec::new();
    layouts! { facts;
        ibv_device { _ops, node_type, transport_type, name, dev_name, dev_path, ibdev_path }
        ibv_gid_entry { gid, gid_index, port_num, gid_type, ndev_ifindex }
        ibv_device_attr {
            fw_ver, node_guid, sys_image_guid, max_mr_size, page_size_cap, vendor_id, vendor_part_id, hw_ver, max_qp,
            max_qp_wr, device_cap_flags, max_sge, max_sge_rd, max_cq, max_cqe, max_mr, max_pd, max_qp_rd_atom,
            max_ee_rd_atom, max_res_rd_atom, max_qp_init_rd_atom, max_ee_init_rd_atom, atomic_cap, max_ee, max_rdd,
            max_mw, max_raw_ipv6_qp, max_raw_ethy_qp, max_mcast_grp, max_mcast_qp_attach, max_total_mcast_qp_attach,
            max_ah, max_fmr, max_map_per_fmr, max_srq, max_srq_wr, max_srq_sge, max_pkeys, local_ca_ack_delay,
            phys_port_cnt,
        }
        ibv_odp_caps {
            general_caps, rc_odp_caps = "per_transport_caps.rc_odp_caps", uc_odp_caps = "per_transport_caps.uc_odp_caps",
            ud_odp_caps = "per_transport_caps.ud_odp_caps",
        }
        ibv_tso_caps { max_tso, supported_qpts }
        ibv_rss_caps {
            supported_qpts, max_rwq_indirection_tables, max_rwq_indirection_table_size, rx_hash_fields_mask,
            rx_hash_function,
        }
        ibv_packet_pacing_caps { qp_rate_limit_min, qp_rate_limit_max, supported_qpts }
        ibv_tm_caps { max_rndv_hdr_size, max_num_tags, flags, max_ops, max_sge }
        ibv_cq_moderation_caps { max_cq_count, max_cq_period }
        ibv_pci_atomic_caps { fetch_add, swap, compare_swap }
        ibv_device_attr_ex {
            orig_attr, comp_mask, odp_caps, completion_timestamp_mask, hca_core_clock, device_cap_flags_ex, tso_caps,
            rss_caps, max_wq_type_rq, packet_pacing_caps, raw_packet_caps, tm_caps, cq_mod_caps, max_dm_size,
            pci_atomic_caps, xrc_odp_caps, phys_port_cnt_ex,
        }
        ibv_query_device_ex_input { comp_mask }
        ibv_pd { context, handle }
        ibv_mr { context, pd, addr, length, handle, lkey, rkey }
        ibv_mw { context, pd, rkey, handle, r#type }
        ibv_mw_bind_info { mr, addr, length, mw_access_flags }
        ibv_global_route { dgid, flow_label, sgid_index, hop_limit, traffic_class }
        ibv_ah_attr { grh, dlid, sl, src_path_bits, static_rate, is_global, port_num }
        ibv_ah { context, pd, handle }
        ibv_grh { version_tclass_flow, paylen, next_hdr, hop_limit, sgid, dgid }
        ibv_xrcd { context }
        ibv_xrcd_init_attr { comp_mask, fd, oflags }
        ibv_qp_open_attr { comp_mask, qp_num, xrcd, qp_context, qp_type }
        ibv_ece { vendor_id, options, comp_mask }
        ibv_values_ex { comp_mask, raw_clock }
        ibv_comp_channel { context, fd, refcnt }
        ibv_cq {
            context, channel, cq_context, handle, cqe, mutex, cond, comp_events_completed, async_events_completed,
        }
        ibv_poll_cq_attr { comp_mask }
        ibv_wc_tm_info { tag, r#priv }
        ibv_cq_ex {
            base = "context", comp_mask, status, wr_id, start_poll, next_poll, end_poll, read_opcode, read_vendor_err,
            read_byte_len, read_imm_data, read_qp_num, read_src_qp, read_wc_flags, read_slid, read_sl,
            read_dlid_path_bits, read_completion_ts, read_cvlan, read_flow_tag, read_tm_info,
            read_completion_wallclock_ns,
        }
        ibv_cq_init_attr_ex {
            cqe, cq_context, channel, comp_vector, wc_flags, comp_mask, flags, parent_domain,
        }
        ibv_wc {
            wr_id, status, opcode, vendor_err, byte_len, imm_data, qp_num, src_qp, wc_flags, pkey_index, slid, sl,
            dlid_path_bits,
        }
        ibv_async_event { element, event_type }
        ibv_sge { addr, length, lkey }
        ibv_data_buf { addr, length }
        ibv_send_wr {
            wr_id, next, sg_list, num_sge, opcode, send_flags, imm_data, wr, remote_srqn = "qp_type.xrc.remote_srqn",
            extra = "bind_mw",
        }
        ibv_recv_wr { wr_id, next, sg_list, num_sge }
        ibv_qp {
            context, qp_context, pd, send_cq, recv_cq, srq, handle, qp_num, state, qp_type, mutex, cond,
            events_completed,
        }
        ibv_qp_cap { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data }
        ibv_qp_init_attr { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all }
        ibv_rx_hash_conf { rx_hash_function, rx_hash_key_len, rx_hash_key, rx_hash_fields_mask }
        ibv_qp_init_attr_ex {
            qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all, comp_mask, pd, xrcd, create_flags,
            max_tso_header, rwq_ind_tbl, rx_hash_conf, source_qpn, send_ops_flags,
        }
        ibv_qp_attr {
            qp_state, cur_qp_state, path_mtu, path_mig_state, qkey, rq_psn, sq_psn, dest_qp_num, qp_access_flags, cap,
            ah_attr, alt_ah_attr, pkey_index, alt_pkey_index, en_sqd_async_notify, sq_draining, max_rd_atomic,
            max_dest_rd_atomic, min_rnr_timer, port_num, timeout, retry_cnt, rnr_retry, alt_port_num, alt_timeout,
            rate_limit,
        }
        ibv_srq { context, srq_context, pd, handle, mutex, cond, events_completed }
        ibv_srq_attr { max_wr, max_sge, srq_limit }
        ibv_srq_init_attr { srq_context, attr }
        ibv_srq_init_attr_ex { srq_context, attr, comp_mask, srq_type, pd, xrcd, cq, tm_cap }
        ibv_context_ops {
            alloc_mw, bind_mw, dealloc_mw, poll_cq, req_notify_cq, post_srq_recv, post_send, post_recv,
        }
        ibv_context { device, ops, cmd_fd, async_fd, num_comp_vectors, mutex, abi_compat }
        ibv_sa_path_rec {
            dgid, sgid, dlid, slid, raw_traffic, flow_label, hop_limit, traffic_class, reversible, numb_path, pkey, sl,
            mtu_selector, mtu, rate_selector, rate, packet_life_time_selector, packet_life_time, preference,
        }
        ibv_path_record {
            service_id, dgid, sgid, dlid, slid, flowlabel_hoplimit, tclass, reversible_numpath, pkey, qosclass_sl, mtu,
            rate, packetlifetime, preference, reserved,
        }
        ibv_path_data { flags, reserved, path }
        rdma_cm_join_mc_attr_ex { comp_mask, join_flags, addr }
        rdma_event_channel { fd }
        rdma_ib_addr { sgid, dgid, pkey }
        rdma_addr { src_storage, dst_storage, addr }
        rdma_route { addr, path_rec, num_paths }
        rdma_cm_id {
            verbs, channel, context, qp, route, ps, port_num, event, send_cq_channel, send_cq, recv_cq_channel,
            recv_cq, srq, pd, qp_type,
        }
        rdma_conn_param {
            private_data, private_data_len, responder_resources, initiator_depth, flow_control, retry_count,
            rnr_retry_count, srq, qp_num,
        }
        rdma_ud_param { private_data, private_data_len, ah_attr, qp_num, qkey }
        rdma_cm_event { id, listen_id, event, status, param }
        rdma_addrinfo {
            ai_flags, ai_family, ai_qp_type, ai_port_space, ai_src_len, ai_dst_len, ai_src_addr, ai_dst_addr,
            ai_src_canonname, ai_dst_canonname, ai_route_len, ai_route, ai_connect_len, ai_connect, ai_next,
        }
    }
    // Structures that differ in size on purpose: ours have what newer headers append.
    for (field, offset) in port_attr_fields() {
        facts.push((format!("offsetof(struct ibv_port_attr, {field})"), offset));
    }
    for (field, offset) in qp_ex_fields() {
        facts.push((format!("offsetof(struct ibv_qp_ex, {field})"), offset));
    }
    // Grows towards lower addresses: what counts is the distance from `context`.
    let context = std::mem::offset_of!(verbs_context, context) as i64;
    for (field, offset) in verbs_context_fields() {
        let field = match field.trim_start_matches("r#") {
            "abi_placeholder1" => "ABI_placeholder1",
            "abi_placeholder2" => "ABI_placeholder2",
            "abi_placeholder3" => "_ABI_placeholder3",
            other => other,
        };
        facts.push((
            format!(
                "offsetof(struct verbs_context, context) - offsetof(struct verbs_context, {field})"
            ),
            context - offset,
        ));
    }
    facts.push((
        "sizeof(struct verbs_context) - offsetof(struct verbs_context, context)".into(),
        size_of::<verbs_context>() as i64 - context,
    ));
    facts.push(("sizeof(union ibv_gid)".into(), size_of::<ibv_gid>() as i64));
    facts.push((
        "_Alignof(union ibv_gid)".into(),
        align_of::<ibv_gid>() as i64,
    ));
    facts.push((
        format!("sizeof(struct ibv_qp_ex) <= {}", size_of::<ibv_qp_ex>()),
        1,
    ));
    facts.push((
        format!(
            "sizeof(struct ibv_port_attr) <= {}",
            size_of::<ibv_port_attr>()
        ),
        1,
    ));
    for (member, offset) in [
        (
            "wr.rdma.remote_addr",
            std::mem::offset_of!(ibv_wr_rdma, remote_addr),
        ),
        ("wr.rdma.rkey", std::mem::offset_of!(ibv_wr_rdma, rkey)),
        (
            "wr.atomic.remote_addr",
            std::mem::offset_of!(ibv_wr_atomic, remote_addr),
        ),
        (
            "wr.atomic.compare_add",
            std::mem::offset_of!(ibv_wr_atomic, compare_add),
        ),
        ("wr.atomic.swap", std::mem::offset_of!(ibv_wr_atomic, swap)),
        ("wr.atomic.rkey", std::mem::offset_of!(ibv_wr_atomic, rkey)),
        ("wr.ud.ah", std::mem::offset_of!(ibv_wr_ud, ah)),
        (
            "wr.ud.remote_qpn",
            std::mem::offset_of!(ibv_wr_ud, remote_qpn),
        ),
        (
            "wr.ud.remote_qkey",
            std::mem::offset_of!(ibv_wr_ud, remote_qkey),
        ),
    ] {
        let base = std::mem::offset_of!(ibv_send_wr, wr);
        facts.push((
            format!("offsetof(struct ibv_send_wr, {member})"),
            (base + offset) as i64,
        ));
    }
    facts
}

macro_rules! offsets {
    ($ty:ident: $($field:ident),* $(,)?) => {
        vec![$((stringify!($field), std::mem::offset_of!($ty, $field) as i64)),*]
    };
}

fn port_attr_fields() -> Vec<(&'static str, i64)> {
    offsets! { ibv_port_attr:
        state, max_mtu, active_mtu, gid_tbl_len, port_cap_flags, max_msg_sz, bad_pkey_cntr, qkey_viol_cntr,
        pkey_tbl_len, lid, sm_lid, lmc, max_vl_num, sm_sl, subnet_timeout, init_type_reply, active_width,
        active_speed, phys_state, link_layer, flags, port_cap_flags2,
    }
}

fn verbs_context_fields() -> Vec<(&'static str, i64)> {
    offsets! { verbs_context:
        query_port, advise_mr, alloc_null_mr, read_counters, attach_counters_point_flow, create_counters,
        destroy_counters, reg_dm_mr, alloc_dm, free_dm, modify_flow_action_esp, destroy_flow_action,
        create_flow_action_esp, modify_qp_rate_limit, alloc_parent_domain, dealloc_td, alloc_td, modify_cq,
        post_srq_ops, destroy_rwq_ind_table, create_rwq_ind_table, destroy_wq, modify_wq, create_wq, query_rt_values,
        create_cq_ex, r#priv, query_device_ex, ibv_destroy_flow, abi_placeholder2, ibv_create_flow, abi_placeholder1,
        open_qp, create_qp_ex, get_srq_num, create_srq_ex, open_xrcd, close_xrcd, abi_placeholder3, sz,
    }
}

fn qp_ex_fields() -> Vec<(&'static str, i64)> {
    offsets! { ibv_qp_ex:
        qp_base, comp_mask, wr_id, wr_flags, wr_atomic_cmp_swp, wr_atomic_fetch_add, wr_bind_mw, wr_local_inv,
        wr_rdma_read, wr_rdma_write, wr_rdma_write_imm, wr_send, wr_send_imm, wr_send_inv, wr_send_tso,
        wr_set_ud_addr, wr_set_xrc_srqn, wr_set_inline_data, wr_set_inline_data_list, wr_set_sge, wr_set_sge_list,
        wr_start, wr_complete, wr_abort, wr_atomic_write,
    }
}

fn signedness() -> Vec<Fact> {
    let mut facts = Vec::new();
    scalars! { facts;
        ibv_device { node_type, transport_type }
        ibv_device_attr { node_guid, max_mr_size, vendor_id, max_qp, max_sge, device_cap_flags, atomic_cap, max_pkeys,
            local_ca_ack_delay, max_srq_sge }
        ibv_port_attr { state, max_mtu, active_mtu, gid_tbl_len, port_cap_flags, max_msg_sz, pkey_tbl_len, lid, flags }
        ibv_gid_entry { gid_index, port_num, gid_type, ndev_ifindex }
        ibv_mr { length, handle, lkey, rkey }
        ibv_comp_channel { fd, refcnt }
        ibv_cq { handle, cqe, comp_events_completed }
        ibv_cq_init_attr_ex { cqe, comp_vector, wc_flags, comp_mask, flags }
        ibv_wc { wr_id, status, opcode, vendor_err, byte_len, imm_data, qp_num, wc_flags, slid, sl }
        ibv_async_event { event_type }
        ibv_sge { addr, length, lkey }
        ibv_send_wr { wr_id, num_sge, opcode, send_flags, imm_data }
        ibv_recv_wr { wr_id, num_sge }
        ibv_qp { handle, qp_num, state, qp_type, events_completed }
        ibv_qp_init_attr { qp_type, sq_sig_all }
        ibv_qp_attr { qp_state, cur_qp_state, path_mtu, path_mig_state, qkey, qp_access_flags, pkey_index,
            en_sqd_async_notify, max_rd_atomic, rate_limit }
        ibv_context { cmd_fd, async_fd, num_comp_vectors }
        verbs_context { sz }
        rdma_event_channel { fd }
        rdma_cm_id { ps, port_num, qp_type }
        rdma_cm_event { event, status }
        rdma_conn_param { private_data_len, retry_count, srq, qp_num }
        rdma_ud_param { private_data_len, qp_num, qkey }
        rdma_cm_join_mc_attr_ex { comp_mask, join_flags }
        rdma_addrinfo { ai_flags, ai_family, ai_qp_type, ai_port_space, ai_src_len, ai_route_len }
        ibv_sa_path_rec { dlid, raw_traffic, flow_label, reversible, numb_path, pkey, preference }
        ibv_path_data { flags }
    }
    facts
}

fn constants() -> Vec<Fact> {
    consts::ALL
        .iter()
        .chain(RDMA)
        .map(|(name, value)| ((*name).to_string(), i64::from(*value)))
        .collect()
}

/// Asks the C compiler for the value of each expression and lists those that differ.
fn differences(name: &str, facts: &[Fact]) -> Vec<String> {
    let mut source = String::from(
        "#include <stddef.h>\n#include <stdio.h>\n#include <infiniband/verbs.h>\n#include <rdma/rdma_cma.h>\n\
         int main(void) {\n",
    );
    for (expression, _) in facts {
        source.push_str(&format!(
            "    printf(\"%lld\\n\", (long long)({expression}));\n"
        ));
    }
    source.push_str("    return 0;\n}\n");
    let dir = common::scratch("layout");
    // Comparing an unsigned type with 0 is the point here.
    let program = common::compile(&dir, name, &source, &["-Wno-type-limits"]);
    let output = Command::new(program).output().expect("the C program runs");
    let text = common::text(&output);
    let values: Vec<i64> = text
        .lines()
        .map(|line| line.parse().expect("a number"))
        .collect();
    assert_eq!(values.len(), facts.len(), "{text}");
    facts
        .iter()
        .zip(values)
        .filter(|((_, ours), theirs)| ours != theirs)
        .map(|((expression, ours), theirs)| format!("{expression}: C says {theirs}, we say {ours}"))
        .collect()
}

fn agree(name: &str, facts: Vec<Fact>) {
    if common::headers_available() {
        let differences = differences(name, &facts);
        assert!(differences.is_empty(), "{differences:#?}");
    }
}

#[test]
fn structures_have_the_sizes_and_offsets_of_the_headers() {
    agree("structures", structures());
}

#[test]
fn scalars_have_the_widths_and_signs_of_the_headers() {
    agree("scalars", signedness());
}

#[test]
fn constants_have_the_values_of_the_headers() {
    agree("constants", constants());
}

/// A difference is found: the comparison itself can fail.
#[test]
fn a_wrong_figure_is_noticed() {
    if common::headers_available() {
        let wrong = vec![("sizeof(struct ibv_wc)".to_string(), 47)];
        assert_eq!(differences("wrong", &wrong).len(), 1);
    }
}
