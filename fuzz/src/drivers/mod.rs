//! Drivers against devices that answer whatever they like.

use drivers::virtio::Transport;

/// Asks a transport for everything that needs no set-up.
pub(crate) fn touch(transport: &dyn Transport) {
    let _ = (transport.device_id(), transport.features(), transport.status(), transport.config_generation());
    for queue in [0, 1, 7, u16::MAX] {
        let _ = (transport.queue_entries_max(queue), transport.map_queue(queue, 0));
    }
    for offset in [0, 8, 0x100] {
        let _ = (transport.config8(offset), transport.config16(offset), transport.config32(offset));
    }
}
