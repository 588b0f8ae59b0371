//! The packets of the flows: UDP over IPv4 in the shortest Ethernet frame. Each packet identifies its flow.

/// Frame length without its check sequence (IEEE 802.3, clause 4A.4.2: 64 bytes with it).
const BYTES: usize = 60;
/// Ethernet header.
const ETHERNET: usize = 14;
/// IPv4 header without options.
const IP: usize = 20;
const UDP: usize = 8;
const PAYLOAD: usize = ETHERNET + IP + UDP;
/// UDP port of flow 0 at both ends; flow n has the n-th after it.
const PORT: u16 = 9000;

/// The checksum of an IPv4 header (RFC 791, RFC 1071).
fn checksum(header: &[u8]) -> u16 {
    let words = header.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    !((sum & 0xffff) + (sum >> 16)) as u16
}

/// Packet `sequence` of `flow`, to the card with this address.
pub(super) fn build(flow: u16, sequence: u64, to: [u8; 6]) -> Vec<u8> {
    let mut frame = vec![0; BYTES];
    frame[0..6].copy_from_slice(&to);
    // The host's end: a locally administered address.
    frame[6..12].copy_from_slice(&[0x02, 0, 0, 0, 0, 1]);
    frame[12..14].copy_from_slice(&0x0800u16.to_be_bytes());
    let ip = &mut frame[ETHERNET..ETHERNET + IP];
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&((BYTES - ETHERNET) as u16).to_be_bytes());
    (ip[8], ip[9]) = (64, 17);
    ip[12..16].copy_from_slice(&[10, 0, 0, 1]);
    ip[16..20].copy_from_slice(&[10, 0, 0, 2]);
    let sum = checksum(ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let udp = &mut frame[ETHERNET + IP..PAYLOAD];
    for port in [0, 2] {
        udp[port..port + 2].copy_from_slice(&(PORT + flow).to_be_bytes());
    }
    // Without a UDP checksum, which IPv4 allows.
    udp[4..6].copy_from_slice(&((BYTES - ETHERNET - IP) as u16).to_be_bytes());
    frame[PAYLOAD..PAYLOAD + 8].copy_from_slice(&sequence.to_be_bytes());
    frame
}

/// Flow and sequence number of a frame that came back; the addresses may have been swapped. None for any other.
pub(super) fn parse(frame: &[u8], flows: u16) -> Option<(u16, u64)> {
    let is_udp = frame.len() == BYTES && frame[12..14] == [0x08, 0] && frame[ETHERNET + 9] == 17;
    if !is_udp || checksum(&frame[ETHERNET..ETHERNET + IP]) != 0 {
        return None;
    }
    let port = u16::from_be_bytes([frame[ETHERNET + IP], frame[ETHERNET + IP + 1]]);
    let flow = port.checked_sub(PORT).filter(|&flow| flow < flows)?;
    let sequence = frame[PAYLOAD..PAYLOAD + 8].try_into().expect("8 bytes");
    Some((flow, u64::from_be_bytes(sequence)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The header checksum of RFC 1071's method over a header whose sum is known.
    #[test]
    fn a_frame_says_whose_it_is() {
        let frame = build(3, 0x1234_5678_9abc, [0x52, 0x54, 0, 0, 0, 1]);
        assert_eq!(frame.len(), 60);
        // 4500 + 002e + 4011 + 0a00 + 0001 + 0a00 + 0002 = 9942, complement 66bd.
        assert_eq!(frame[24..26], [0x66, 0xbd]);
        assert_eq!(frame[34..42], [0x23, 0x2b, 0x23, 0x2b, 0, 26, 0, 0]);
        assert_eq!(parse(&frame, 4), Some((3, 0x1234_5678_9abc)));
        assert_eq!(parse(&frame, 3), None, "there is no such flow");
        assert_eq!(parse(&frame[..59], 4), None);
        let mut broken = frame;
        broken[20] ^= 1;
        assert_eq!(parse(&broken, 4), None);
    }
}
