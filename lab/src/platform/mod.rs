//! Platforms: calibrated hardware constants, each with its unit and its reason.

mod constant;
mod groups;
mod read;
#[cfg(test)]
mod tests;
mod unit;

pub use constant::{Constant, Needed, Spec};
pub use groups::{Accelerator, Cpu, Drive, Fabric, Gic, Nic, Vhost};
pub use read::{EMBEDDED, SCHEMA, is_path};
pub use unit::Unit;

use crate::input::InputError;
use crate::report::figure::counted;
use crate::setting::Setting;
use crate::work;
use hal::Work;

/// A server's constants.
#[derive(Clone, PartialEq, Debug)]
pub struct Platform {
    /// Its name: `emr`.
    pub name: String,
    /// One line about it.
    pub about: String,
    /// The platform that lends it the constants that it does not give.
    pub base: Option<Setting>,
    /// It is somebody's own: no platform that the program carries.
    pub is_own: bool,
    /// Measurements that it was fitted to and does not give back: `one-drive-full/iops -75.6 %`.
    pub misses: Vec<String>,
    /// Costs of a CPU.
    pub cpu: Cpu,
    /// Between drives and CPUs.
    pub fabric: Fabric,
    /// Kinds of drive by name, in the file's order.
    pub drives: Vec<(String, Drive)>,
    /// The streaming accelerator.
    pub accelerator: Option<Accelerator>,
    /// The RDMA NIC.
    pub nic: Option<Nic>,
    /// The host of a guest with a virtio card.
    pub vhost: Option<Vhost>,
    /// Arm's interrupt controller.
    pub gic: Option<Gic>,
}

/// The groups of a platform file.
const GROUPS: [&str; 7] = ["cpu", "fabric", "drive", "accelerator", "nic", "vhost", "gic"];

impl Platform {
    /// Whether `key` begins with the name of a group of constants and a dot.
    pub fn has_group_of(key: &str) -> bool {
        key.split_once('.').is_some_and(|(group, _)| GROUPS.contains(&group))
    }

    /// What it says of itself if it does not give back what it was fitted to.
    pub fn caution(&self) -> Option<String> {
        (!self.misses.is_empty()).then(|| {
            format!(
                "{} misses measurements that it was fitted to by more than their noise: {}. Its figures, and changes of \
                 them, are worth no more than that",
                self.name,
                self.misses.join(", ")
            )
        })
    }

    /// The kind of drive with that name.
    pub fn drive(&self, kind: &str) -> Option<&Drive> {
        self.drives.iter().find(|(name, _)| name == kind).map(|(_, drive)| drive)
    }

    /// The cost of one unit of `work` on this platform, in picoseconds. Zero for work that the platform does not have.
    pub fn work_ps(&self, work: Work) -> u64 {
        let (nic, gic) = (self.nic.as_ref(), self.gic.as_ref());
        let cost = self.cpu.work(work).or(match work {
            work::STREAM_ENTRY => self.accelerator.as_ref().map(|accelerator| &accelerator.stream_entry),
            Work::SoftPass => nic.map(|nic| &nic.soft_pass),
            work::FABRIC_SUBMIT => nic.map(|nic| &nic.submit),
            work::FABRIC_COMPLETE => nic.map(|nic| &nic.complete),
            work::FABRIC_SERVE => nic.map(|nic| &nic.serve),
            work::FABRIC_PROGRAM => nic.map(|nic| &nic.program),
            work::RAISE => gic.map(|gic| &gic.raise),
            _ => None,
        });
        cost.map_or(0, |cost| self.cpu.scaled_ps(cost))
    }

    /// Every constant that the platform has, with its dotted key, in the order of the file.
    pub fn constants(&self) -> Vec<(String, &'static Spec, &Constant)> {
        let cpu = self.cpu.iter().map(|(spec, constant)| (format!("cpu.{}", spec.name), spec, constant));
        let fabric = self.fabric.iter().map(|(spec, constant)| (format!("fabric.{}", spec.name), spec, constant));
        let drives = self.drives.iter().flat_map(|(kind, drive)| {
            drive.iter().map(move |(spec, constant)| (format!("drive.{kind}.{}", spec.name), spec, constant))
        });
        let accelerator = self.accelerator.iter().flat_map(Accelerator::iter);
        let accelerator = accelerator.map(|(spec, constant)| (format!("accelerator.{}", spec.name), spec, constant));
        let nic = self.nic.iter().flat_map(Nic::iter);
        let nic = nic.map(|(spec, constant)| (format!("nic.{}", spec.name), spec, constant));
        let vhost = self.vhost.iter().flat_map(Vhost::iter);
        let vhost = vhost.map(|(spec, constant)| (format!("vhost.{}", spec.name), spec, constant));
        let gic = self.gic.iter().flat_map(Gic::iter);
        let gic = gic.map(|(spec, constant)| (format!("gic.{}", spec.name), spec, constant));
        let all = cpu.chain(fabric).chain(drives).chain(accelerator).chain(nic).chain(vhost).chain(gic);
        all.filter(|(.., constant)| constant.is_given()).collect()
    }

    /// The constants that `campanile calibrate` may vary.
    pub fn free_constants(&self) -> Vec<(String, &'static Spec, &Constant)> {
        self.constants().into_iter().filter(|(_, _, constant)| constant.fit).collect()
    }

    /// The constant with that dotted key, mutable.
    pub fn get_mut(&mut self, key: &str) -> Option<(&'static Spec, &mut Constant)> {
        let (group, name) = key.rsplit_once('.')?;
        match group {
            "cpu" => self.cpu.get_mut(name),
            "fabric" => self.fabric.get_mut(name),
            "accelerator" => self.accelerator.as_mut()?.get_mut(name),
            "nic" => self.nic.as_mut()?.get_mut(name),
            "vhost" => self.vhost.as_mut()?.get_mut(name),
            "gic" => self.gic.as_mut()?.get_mut(name),
            _ => {
                let kind = group.strip_prefix("drive.")?;
                let (_, drive) = self.drives.iter_mut().find(|(known, _)| known == kind)?;
                drive.get_mut(name)
            }
        }
    }

    /// Checks constants against each other.
    ///
    /// # Errors
    /// A drive's smallest media time is above its mean, its longest transfer is no power of two, or regions differ in length.
    pub fn validate(&self) -> Result<(), InputError> {
        self.validate_as(Constant::is_set_again)
    }

    /// As [`Self::validate`]. Where two constants contradict each other, the error names one that is `new`: the others were
    /// right before.
    fn validate_as(&self, new: impl Fn(&Constant) -> bool) -> Result<(), InputError> {
        self.validate_regions(&new)?;
        for (kind, drive) in &self.drives {
            let (floor, mean) = (&drive.media_floor, &drive.media_mean);
            if floor.value > mean.value {
                let [floor_key, mean_key] = ["media_floor", "media_mean"].map(|name| format!("drive.{kind}.{name}"));
                let [floor_time, mean_time] = [floor, mean].map(|time| Unit::Time.format(time.value));
                return Err(if new(mean) && !new(floor) {
                    let valid = format!("at least {floor_key}, {floor_time} ({})", floor.place);
                    InputError::value(&mean.place, mean_key, mean_time, "is below the smallest time", valid)
                } else {
                    let valid = format!("at most {mean_key}, {mean_time} ({})", mean.place);
                    InputError::value(&floor.place, floor_key, floor_time, "is above the mean", valid)
                });
            }
            if !drive.transfer.whole().is_power_of_two() {
                let (key, value) = (format!("drive.{kind}.transfer"), Unit::Size.format(drive.transfer.value));
                let valid = "8 KiB, 16 KiB, … 2 MiB";
                return Err(InputError::value(&drive.transfer.place, key, value, "is no power of two", valid));
            }
        }
        Ok(())
    }

    /// Regions are points, of which each constant has its factor: as many as another.
    fn validate_regions(&self, new: impl Fn(&Constant) -> bool) -> Result<(), InputError> {
        let constants = self.constants();
        let mut regions = constants.iter().filter(|(.., constant)| !constant.region.is_empty());
        let Some(first) = regions.next() else { return Ok(()) };
        let count = |(.., constant): &(String, &Spec, &Constant)| constant.region.len();
        let Some(other) = regions.find(|other| count(other) != count(first)) else { return Ok(()) };
        let ((key, _, wrong), known) = if new(other.2) || !new(first.2) { (other, first) } else { (first, other) };
        let why = format!("factors are not as many as those of {}, and the first of all belong together", known.0);
        let valid = counted(count(known), "factor");
        Err(InputError::value(&wrong.place, format!("{key}.region"), wrong.region.len(), why, valid))
    }

    /// Sets one constant. The constant is then no longer free, and its reason says that it was set.
    ///
    /// # Errors
    /// The key is unknown, or the value has the wrong unit or is out of bounds.
    pub fn set(&mut self, setting: &Setting) -> Result<(), InputError> {
        let Some((spec, constant)) = self.get_mut(&setting.key) else {
            let names: Vec<String> = self.constants().into_iter().map(|(key, ..)| key).collect();
            return Err(setting.unknown(names.iter().map(String::as_str)));
        };
        let value = spec.unit.read(setting, spec.min, spec.max)?;
        let reason = Constant::reason_to_set(&setting.place);
        let place = setting.place.clone();
        *constant = Constant { value, reason, fit: false, uncertainty: None, region: Vec::new(), place };
        Ok(())
    }
}
