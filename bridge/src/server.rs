//! Serves a function to one client after another.

use crate::config_space;
use crate::device::{Device, Job};
use crate::function::{BARS, Served};
use std::fmt;
use std::fs::File;
use std::io::{Error, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_INFO_EVENTFD, VFIO_IRQ_INFO_MASKABLE, VFIO_IRQ_SET_ACTION_MASK, VFIO_IRQ_SET_ACTION_TRIGGER,
    VFIO_IRQ_SET_ACTION_UNMASK, VFIO_IRQ_SET_DATA_EVENTFD, VFIO_IRQ_SET_DATA_NONE, VFIO_PCI_BAR0_REGION_INDEX,
    VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_MSIX_IRQ_INDEX, VFIO_PCI_NUM_IRQS, VFIO_PCI_NUM_REGIONS,
    VFIO_REGION_INFO_FLAG_READ, VFIO_REGION_INFO_FLAG_WRITE, vfio_region_info,
};
use vfio_user::{DmaMapFlags, DmaUnmapFlags, IrqInfo, ServerBackend, ServerRegion};

/// Capacity of the job queue to the device. A client that writes faster is blocked.
const JOBS_MAX: usize = 1024;

/// Sink for messages to the user, one line each.
pub type Report = Arc<dyn Fn(&str) + Send + Sync>;

/// Why the server could not start or continue.
#[derive(Debug)]
pub struct ServeError(String);

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ServeError {}

/// A function behind a socket.
pub struct Server {
    server: vfio_user::Server,
    served: Served,
    report: Report,
}

impl Server {
    /// Binds `socket`, which must not exist, for `served`.
    ///
    /// # Errors
    /// The socket exists or cannot be bound.
    pub fn bind(socket: &Path, served: impl Into<Served>, report: Report) -> Result<Self, ServeError> {
        let served = served.into();
        let irqs = (0..VFIO_PCI_NUM_IRQS).map(|index| irq_info(index, served.vectors())).collect();
        let regions = (0..VFIO_PCI_NUM_REGIONS).map(|index| region(index, &served)).collect();
        let server = vfio_user::Server::new(socket, true, irqs, regions)
            .map_err(|error| ServeError(format!("{}: {error}", socket.display())))?;
        Ok(Self { server, served, report })
    }

    /// Waits for a client and serves it until it disconnects. The next client always gets a working function, whatever
    /// this client did.
    ///
    /// # Errors
    /// No client can be accepted any more. A client's own error is reported, but it is not an error of this call.
    pub fn serve_one(&self) -> Result<(), ServeError> {
        let mut client = Client::new(self.served.clone(), self.report.clone());
        // The protocol crate trusts the lengths in a version message. If it panics, the connection ends.
        let ended = catch_unwind(AssertUnwindSafe(|| self.server.run(&mut client)));
        client.leave();
        match ended {
            Ok(Ok(())) => (self.report)("the client has closed the connection"),
            Ok(Err(error @ vfio_user::Error::SocketAccept(_))) => return Err(ServeError(error.to_string())),
            Ok(Err(error)) => (self.report)(&format!("connection closed: {error}")),
            Err(_) => (self.report)("connection closed: the client's message cannot be read"),
        }
        Ok(())
    }
}

/// Passes one client's requests to a new function, for a caller with another transport than [`Server`]. Dropping this
/// value ends the function.
pub fn backend(served: impl Into<Served>, report: Report) -> impl ServerBackend {
    Client::new(served.into(), report)
}

fn irq_info(index: u32, vectors: u16) -> IrqInfo {
    let msix = index == VFIO_PCI_MSIX_IRQ_INDEX;
    let flags = if msix { VFIO_IRQ_INFO_EVENTFD | VFIO_IRQ_INFO_MASKABLE } else { 0 };
    IrqInfo { index, flags, count: if msix { vectors.into() } else { 0 } }
}

fn region(index: u32, served: &Served) -> ServerRegion {
    let size = match index {
        VFIO_PCI_CONFIG_REGION_INDEX => config_space::BYTES,
        _ => bar(index).map_or(0, |bar| served.bars[bar]),
    };
    let flags = if size > 0 { VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE } else { 0 };
    let argsz = size_of::<vfio_region_info>() as u32;
    let region_info = vfio_region_info { argsz, flags, index, size, ..Default::default() };
    ServerRegion { region_info, sparse_areas: Vec::new(), mmap_fd: None }
}

/// The BAR number that corresponds to a region.
fn bar(region: u32) -> Option<usize> {
    region.checked_sub(VFIO_PCI_BAR0_REGION_INDEX).map(|bar| bar as usize).filter(|&bar| bar < BARS)
}

/// One client. Sends the client's requests to the device's thread.
struct Client {
    served: Served,
    jobs: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
    report: Report,
    /// A region without a file was already reported.
    fileless_told: bool,
}

impl Client {
    fn new(served: Served, report: Report) -> Self {
        let (jobs, waiting) = sync_channel(JOBS_MAX);
        let thread = std::thread::spawn({
            let (served, report) = (served.clone(), report.clone());
            move || Device::new(served, report).run(&waiting)
        });
        Self { served, jobs: Some(jobs), thread: Some(thread), report, fileless_told: false }
    }

    /// Ends the device.
    fn leave(&mut self) {
        self.jobs = None;
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            (self.report)("the device's thread panicked; the next client gets a new one");
        }
    }

    /// Queues `job`; the device runs jobs in order.
    fn post(&self, job: impl FnOnce(&mut Device) + Send + 'static) -> Result<(), Error> {
        let gone = || Error::new(ErrorKind::BrokenPipe, "the device has ended");
        self.jobs.as_ref().ok_or_else(gone)?.send(Box::new(job)).map_err(|_| gone())
    }

    /// Runs `job` on the device and returns the result.
    fn call<R: Send + 'static>(&self, job: impl FnOnce(&mut Device) -> R + Send + 'static) -> Result<R, Error> {
        let (result, done) = sync_channel(1);
        self.post(move |device| _ = result.send(job(device)))?;
        done.recv().map_err(|_| Error::new(ErrorKind::BrokenPipe, "the device has ended"))
    }

    /// The BAR and the access, if the access lies in a BAR and its width is one that a CPU can use.
    fn bar_access(&self, region: u32, offset: u64, len: usize) -> Result<(u8, u32, u8), Error> {
        let Some((number, bytes)) = bar(region).map(|bar| (bar as u8, self.served.bars[bar])).filter(|bar| bar.1 > 0)
        else {
            return Err(self.refuse(format!("region {region} is not there; valid: the function's BARs, configuration")));
        };
        let inside = offset.checked_add(len as u64).is_some_and(|end| end <= bytes);
        if !inside || !matches!(len, 1 | 2 | 4 | 8) {
            let what = format!("{len} bytes at {offset:#x} of BAR {region}; valid: 1, 2, 4 or 8 below {bytes:#x}");
            return Err(self.refuse(what));
        }
        Ok((number, offset as u32, len as u8))
    }

    /// Returns an error and also reports it, because the protocol carries no error text.
    fn refuse(&self, why: String) -> Error {
        (self.report)(&format!("refused: {why}"));
        Error::new(ErrorKind::InvalidInput, why)
    }

    fn reported(&self, result: Result<(), Error>) -> Result<(), Error> {
        result.map_err(|error| self.refuse(error.to_string()))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.leave();
    }
}

impl ServerBackend for Client {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> Result<(), Error> {
        if region == VFIO_PCI_CONFIG_REGION_INDEX {
            let len = data.len();
            if !config_space::holds(offset, len) {
                return Err(self.refuse(format!("{len} bytes at {offset:#x} of 256 bytes of configuration space")));
            }
            let bytes = self.call(move |device| {
                let mut bytes = vec![0; len];
                device.config_read(offset as u32, &mut bytes);
                bytes
            })?;
            data.copy_from_slice(&bytes);
            return Ok(());
        }
        let (bar, offset, width) = self.bar_access(region, offset, data.len())?;
        let value = self.call(move |device| device.bar_read(bar, offset, width))?;
        data.copy_from_slice(&value.to_le_bytes()[..data.len()]);
        Ok(())
    }

    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> Result<(), Error> {
        if region == VFIO_PCI_CONFIG_REGION_INDEX {
            if !config_space::holds(offset, data.len()) {
                let len = data.len();
                return Err(self.refuse(format!("{len} bytes at {offset:#x} of 256 bytes of configuration space")));
            }
            let data = data.to_vec();
            return self.post(move |device| device.config_write(offset as u32, &data));
        }
        let (bar, offset, width) = self.bar_access(region, offset, data.len())?;
        let mut value = [0; 8];
        value[..data.len()].copy_from_slice(data);
        self.post(move |device| device.bar_write(bar, offset, width, u64::from_le_bytes(value)))
    }

    fn dma_map(
        &mut self,
        _flags: DmaMapFlags,
        offset: u64,
        address: u64,
        size: u64,
        fd: Option<File>,
    ) -> Result<(), Error> {
        let Some(file) = fd else {
            if !self.fileless_told {
                self.fileless_told = true;
                (self.report)(&format!(
                    "memory at {address:#x} is not shared as a file: the device cannot reach it \
                     (QEMU: -object memory-backend-memfd,share=on)"
                ));
            }
            return Ok(());
        };
        let mapped = self.call(move |device| device.map(address, offset, size, file))?;
        self.reported(mapped)
    }

    fn dma_unmap(&mut self, flags: DmaUnmapFlags, address: u64, size: u64) -> Result<(), Error> {
        if flags.contains(DmaUnmapFlags::UNMAP_ALL) {
            return self.call(Device::unmap_all);
        }
        self.call(move |device| device.unmap(address, size))
    }

    fn reset(&mut self) -> Result<(), Error> {
        self.call(Device::reset)
    }

    fn set_irqs(&mut self, index: u32, flags: u32, start: u32, count: u32, fds: Vec<File>) -> Result<(), Error> {
        let vectors = u32::from(self.served.vectors());
        if index != VFIO_PCI_MSIX_IRQ_INDEX || start > vectors || count > vectors - start {
            let what = format!("interrupts {start} to {start} + {count} of kind {index}; valid: {vectors} of MSI-X");
            return Err(self.refuse(what));
        }
        let (start, count) = (start as usize, count as usize);
        let with_fds = flags & VFIO_IRQ_SET_DATA_EVENTFD != 0;
        let none = flags & VFIO_IRQ_SET_DATA_NONE != 0;
        if flags & VFIO_IRQ_SET_ACTION_TRIGGER != 0 && with_fds {
            // Fewer descriptors than vectors: the remaining vectors lose their eventfds.
            let mut fds = fds.into_iter();
            let eventfds: Vec<_> = (0..count).map(|_| fds.next()).collect();
            let set = self.call(move |device| device.set_eventfds(start, eventfds))?;
            return self.reported(set);
        }
        if flags & VFIO_IRQ_SET_ACTION_TRIGGER != 0 && none {
            if count == 0 {
                // In VFIO this disables all interrupts of this kind.
                let set = self.call(|device| {
                    let all = (0..device.vectors()).map(|_| None).collect();
                    device.set_eventfds(0, all)
                })?;
                return self.reported(set);
            }
            return self.call(move |device| device.trigger(start, count));
        }
        let mask = flags & VFIO_IRQ_SET_ACTION_MASK != 0;
        if none && (mask || flags & VFIO_IRQ_SET_ACTION_UNMASK != 0) {
            return self.call(move |device| (start..start + count).for_each(|vector| device.set_mask(vector, mask)));
        }
        Err(self
            .refuse(format!("interrupt flags {flags:#x}; valid: trigger, mask or unmask, with eventfds or nothing")))
    }
}
