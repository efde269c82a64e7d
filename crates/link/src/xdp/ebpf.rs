//! Writing programs in eBPF (the kernel's Documentation/bpf/standardization/instruction-set.rst).

use rnic_sys::BpfMap;

// Operations, linux/bpf_common.h and linux/bpf.h; those of loads and stores by the bytes that they
// move.
pub(super) const LOAD_1: u8 = 0x71;
pub(super) const LOAD_2: u8 = 0x69;
pub(super) const LOAD_4: u8 = 0x61;
pub(super) const LOAD_8: u8 = 0x79;
pub(super) const STORE_4: u8 = 0x63;
pub(super) const STORE_8: u8 = 0x7b;
pub(super) const STORE_IMM_4: u8 = 0x62;
pub(super) const STORE_IMM_8: u8 = 0x7a;
pub(super) const LOAD_IMM: u8 = 0x18;
pub(super) const MOV: u8 = 0xbf;
pub(super) const MOV_IMM: u8 = 0xb7;
pub(super) const ADD_IMM: u8 = 0x07;
pub(super) const AND_IMM: u8 = 0x57;
pub(super) const SHIFT_RIGHT_IMM: u8 = 0x77;
pub(super) const BIG_ENDIAN: u8 = 0xdc;
pub(super) const JUMP: u8 = 0x05;
pub(super) const JUMP_IF: u8 = 0x15;
pub(super) const JUMP_UNLESS: u8 = 0x55;
pub(super) const JUMP_IF_ANY: u8 = 0x45;
pub(super) const JUMP_IF_GREATER: u8 = 0x2d;
pub(super) const JUMP_IF_GREATER_IMM: u8 = 0x25;
pub(super) const JUMP_UNLESS_GREATER_IMM: u8 = 0xb5;
/// Of the lower four bytes, whose upper ones become zero.
pub(super) const SUBTRACT_4: u8 = 0x1c;
/// BPF_ATOMIC with BPF_ADD.
pub(super) const ADD_ATOMIC_4: u8 = 0xc3;
pub(super) const CALL: u8 = 0x85;
pub(super) const EXIT: u8 = 0x95;

// Functions of the kernel, linux/bpf.h.
/// bpf_map_lookup_elem()
pub(super) const LOOK_UP: i32 = 1;
/// bpf_ktime_get_ns()
pub(super) const TIME: i32 = 5;
/// bpf_redirect_map()
pub(super) const REDIRECT_MAP: i32 = 51;
/// bpf_redirect_neigh(), since Linux 5.10.
pub(super) const REDIRECT_NEIGH: i32 = 152;

/// Two bytes of a packet, as this machine reads them.
pub(super) fn as_read(value: u16) -> i32 {
    i32::from(u16::from_ne_bytes(value.to_be_bytes()))
}

/// A program as it is written: jumps name places.
#[derive(Debug)]
pub(super) struct Program<L> {
    instructions: Vec<u64>,
    jumps: Vec<(usize, L)>,
    labels: Vec<(usize, L)>,
}

impl<L: Copy + PartialEq> Program<L> {
    pub(super) fn new() -> Program<L> {
        Program {
            instructions: Vec::new(),
            jumps: Vec::new(),
            labels: Vec::new(),
        }
    }

    pub(super) fn put(&mut self, operation: u8, dst: u8, src: u8, offset: i16, imm: i32) {
        let [o0, o1] = offset.to_ne_bytes();
        let [i0, i1, i2, i3] = imm.to_ne_bytes();
        let registers = if cfg!(target_endian = "little") {
            dst | src << 4
        } else {
            dst << 4 | src
        };
        let bytes = [operation, registers, o0, o1, i0, i1, i2, i3];
        self.instructions.push(u64::from_ne_bytes(bytes));
    }

    pub(super) fn jump(&mut self, operation: u8, dst: u8, imm: i32, to: L) {
        self.jumps.push((self.instructions.len(), to));
        self.put(operation, dst, 0, 0, imm);
    }

    pub(super) fn label(&mut self, label: L) {
        self.labels.push((self.instructions.len(), label));
    }

    /// Jumps where a packet, between these two registers, is shorter: up to there the verifier lets
    /// it be read.
    pub(super) fn ends_within(&mut self, start: u8, end: u8, len: i32, short: L) {
        self.put(MOV, 4, start, 0, 0);
        self.put(ADD_IMM, 4, 0, 0, len);
        self.jumps.push((self.instructions.len(), short));
        self.put(JUMP_IF_GREATER, 4, end, 0, 0);
    }

    /// A map's address into a register: two instructions' room.
    pub(super) fn map(&mut self, register: u8, map: &BpfMap) {
        // BPF_PSEUDO_MAP_FD
        self.put(LOAD_IMM, register, 1, 0, map.raw());
        self.put(0, 0, 0, 0, 0);
    }

    /// Looks up a key on the stack: register 0 is zero where it is not there, else it points to its
    /// value.
    pub(super) fn look_up(&mut self, map: &BpfMap, key: i16) {
        self.map(1, map);
        self.put(MOV, 2, 10, 0, 0);
        self.put(ADD_IMM, 2, 0, 0, key.into());
        self.put(CALL, 0, 0, 0, LOOK_UP);
    }

    pub(super) fn finish(mut self) -> Vec<u64> {
        for (from, to) in self.jumps {
            let place = self.labels.iter().find(|(_, label)| *label == to);
            let place = place.map_or(0, |&(place, _)| place);
            let offset = (place - from - 1) as i16;
            let mut bytes = self.instructions[from].to_ne_bytes();
            bytes[2..4].copy_from_slice(&offset.to_ne_bytes());
            self.instructions[from] = u64::from_ne_bytes(bytes);
        }
        self.instructions
    }
}
