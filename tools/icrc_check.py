#!/usr/bin/env python3
"""Checks the invariant CRC of every RoCEv2 packet in pcap files. Standard library only.

    icrc_check.py [--verbose] FILE...

This is deliberately not a translation of rnic's own checker: it was written from the definition (InfiniBand
specification, annex A17: RoCEv2) with zlib's CRC-32, and reads the packet as captured, so that both can be held
against each other.

The ICRC is CRC-32 over the packet from the IP header to the last byte before the ICRC itself, after eight bytes of ones
instead of a link header, with every field that a router may change set to ones:
  IPv4  type of service, time to live, header checksum
  IPv6  traffic class, flow label, hop limit
  UDP   checksum
  BTH   FECN, BECN and the six reserved bits beside them
and is stored with its least significant byte first.

Link types: NULL (0), Ethernet (1), RAW (12, 14, 101), LINUX_SLL (113), IPv4 (228), IPv6 (229), LINUX_SLL2 (276). Both
classic formats, microseconds and nanoseconds, either byte order.

Prints one line per file, "FILE: N packets, N RoCEv2, N wrong ICRC, N malformed, N other", and one per bad packet.
Exit status: 0 all good, 1 something wrong, 2 a file that cannot be read or holds no RoCEv2 packet.
"""

import argparse
import ipaddress
import struct
import sys
import zlib

ROCE_PORT = 4791
ETHERTYPE_IPV4, ETHERTYPE_IPV6 = 0x0800, 0x86DD
VLAN_TAGS = (0x8100, 0x88A8)


class Malformed(Exception):
    """The packet contradicts itself."""


class Other(Exception):
    """Not a RoCEv2 packet."""


class Unreadable(Exception):
    """Not a pcap file, or a truncated one."""


def records(path):
    """Yields (link type, original length, captured bytes) of each record of a classic pcap file."""
    with open(path, "rb") as file:
        head = file.read(24)
        if len(head) < 24:
            raise Unreadable("shorter than a pcap header")
        order = {
            b"\xd4\xc3\xb2\xa1": "<",
            b"\xa1\xb2\xc3\xd4": ">",
            b"\x4d\x3c\xb2\xa1": "<",
            b"\xa1\xb2\x3c\x4d": ">",
        }.get(head[:4])
        if order is None:
            raise Unreadable("not a classic pcap file")
        link_type = struct.unpack(order + "I", head[20:24])[0] & 0x0FFFFFFF
        while True:
            head = file.read(16)
            if not head:
                return
            if len(head) < 16:
                raise Unreadable("ends inside a record header")
            _, _, captured, original = struct.unpack(order + "IIII", head)
            data = file.read(captured)
            if len(data) < captured:
                raise Unreadable("ends inside a record")
            yield link_type, original, data


def ip_packet(link_type, data):
    """Strips the link layer."""

    def by_ethertype(ethertype, rest):
        while ethertype in VLAN_TAGS and len(rest) >= 4:
            ethertype, rest = struct.unpack(">H", rest[2:4])[0], rest[4:]
        if ethertype not in (ETHERTYPE_IPV4, ETHERTYPE_IPV6):
            raise Other
        return rest

    if link_type in (12, 14, 101, 228, 229):
        return data
    if link_type == 0 and len(data) >= 4:
        return data[4:]
    if link_type == 1 and len(data) >= 14:
        return by_ethertype(struct.unpack(">H", data[12:14])[0], data[14:])
    if link_type == 113 and len(data) >= 16:
        return by_ethertype(struct.unpack(">H", data[14:16])[0], data[16:])
    if link_type == 276 and len(data) >= 20:
        return by_ethertype(struct.unpack(">H", data[0:2])[0], data[20:])
    raise Unreadable("link type %d is not known, or a record is too short for it" % link_type)


def udp_datagram(packet):
    """Splits an IP packet: (IP header with its variable fields set to ones, UDP datagram, source, destination)."""
    if not packet:
        raise Malformed("empty")
    version = packet[0] >> 4
    if version == 4:
        if len(packet) < 20:
            raise Malformed("IPv4 header cut off")
        header_length = (packet[0] & 15) * 4
        total = struct.unpack(">H", packet[2:4])[0]
        if packet[9] != 17:
            raise Other
        if struct.unpack(">H", packet[6:8])[0] & 0x3FFF:
            raise Malformed("fragment")
        if header_length < 20 or total < header_length + 8 or total > len(packet):
            raise Malformed("IPv4 lengths: header %d, total %d, captured %d" % (header_length, total, len(packet)))
        header = bytearray(packet[:header_length])
        header[1] = 0xFF
        header[8] = 0xFF
        header[10:12] = b"\xff\xff"
        source, destination = packet[12:16], packet[16:20]
        datagram = packet[header_length:total]
    elif version == 6:
        if len(packet) < 40:
            raise Malformed("IPv6 header cut off")
        payload = struct.unpack(">H", packet[4:6])[0]
        if packet[6] != 17:
            raise Other
        if payload < 8 or 40 + payload > len(packet):
            raise Malformed("IPv6 payload length %d, captured %d" % (payload, len(packet)))
        header = bytearray(packet[:40])
        header[0] |= 0x0F
        header[1:4] = b"\xff\xff\xff"
        header[7] = 0xFF
        source, destination = packet[8:24], packet[24:40]
        datagram = packet[40 : 40 + payload]
    else:
        raise Other
    return bytes(header), datagram, ipaddress.ip_address(source), ipaddress.ip_address(destination)


def check(packet):
    """(stored ICRC, computed ICRC, description) of an IP packet that carries RoCEv2."""
    header, datagram, source, destination = udp_datagram(packet)
    source_port, port, length = struct.unpack(">HHH", datagram[:6])
    if port != ROCE_PORT:
        raise Other
    if length != len(datagram):
        raise Malformed("UDP length %d, IP has room for %d" % (length, len(datagram)))
    if length < 8 + 12 + 4:
        raise Malformed("no room for BTH and ICRC in %d bytes" % length)
    invariant = bytearray(datagram[:-4])
    invariant[6:8] = b"\xff\xff"
    invariant[8 + 4] = 0xFF
    computed = zlib.crc32(bytes(invariant), zlib.crc32(header, zlib.crc32(b"\xff" * 8)))
    stored = struct.unpack("<I", datagram[-4:])[0]
    opcode, qpn, psn = datagram[8], int.from_bytes(datagram[13:16], "big"), int.from_bytes(datagram[17:20], "big")
    about = "%s:%d -> %s opcode %02x QPN %06x PSN %06x, %d bytes" % (
        source, source_port, destination, opcode, qpn, psn, length - 8,
    )
    return stored, computed, about


def check_file(path, verbose):
    """Checks one file and prints what it found; gives its exit status."""
    packets = roce = wrong = malformed = other = 0
    try:
        for link_type, original, data in records(path):
            packets += 1
            try:
                if original != len(data):
                    raise Malformed("captured %d of %d bytes" % (len(data), original))
                stored, computed, about = check(ip_packet(link_type, data))
            except Other:
                other += 1
                continue
            except Malformed as reason:
                malformed += 1
                print("%s: packet %d: malformed: %s" % (path, packets, reason))
                continue
            roce += 1
            if stored != computed:
                wrong += 1
                print("%s: packet %d: ICRC %08x, should be %08x: %s" % (path, packets, stored, computed, about))
            elif verbose:
                print("%s: packet %d: ICRC %08x good: %s" % (path, packets, stored, about))
    except (OSError, Unreadable) as error:
        print("%s: %s" % (path, error))
        return 2
    print("%s: %d packets, %d RoCEv2, %d wrong ICRC, %d malformed, %d other" % (path, packets, roce, wrong, malformed, other))
    if wrong or malformed:
        return 1
    return 0 if roce else 2


def main():
    parser = argparse.ArgumentParser(description="Checks the ICRC of every RoCEv2 packet in pcap files.")
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("-v", "--verbose", action="store_true", help="print good packets, too")
    arguments = parser.parse_args()
    return max(check_file(path, arguments.verbose) for path in arguments.files)


if __name__ == "__main__":
    sys.exit(main())
