//! What a remedy needs of hardware, kernel, device and application, and what is known of them.

use crate::input::{InputError, Place};
use crate::platform::Platform;
use serde::Serialize;

/// One need of a remedy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// The IOMMU posts interrupts (VT-d capability register, bit 59).
    Posting,
    /// Linux of this release or a later one.
    Kernel(u32, u32),
    /// A kernel that nobody releases, and why.
    CustomKernel(&'static str),
    /// A property of the device that the platform does not state, and how to find it out.
    Device(&'static str, &'static str),
    /// Another program, or other options of it.
    Application(&'static str),
}

/// What the reader says of the server beside its platform.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stated {
    /// The release of its kernel.
    pub kernel: Option<(u32, u32)>,
    /// Whether its devices have what only they can say; none: unknown.
    pub device: Option<bool>,
}

/// Whether a remedy can be switched on here.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "possible", content = "why")]
pub enum Possible {
    /// Yes; with these remarks.
    Yes(Vec<String>),
    /// If these conditions hold, which nothing here tells.
    If(Vec<String>),
    /// No, for this reason.
    No(String),
}

/// A kernel's release: `6.10`, or `6.10.3-generic`.
///
/// # Errors
/// It does not begin with two numbers.
pub fn release(text: &str) -> Result<(u32, u32), InputError> {
    let mut parts = text.trim().split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Ok((major, minor)),
        _ => Err(InputError::value(
            &Place::option("--kernel"),
            "",
            text,
            "is no release",
            "6.10, or what uname -r prints",
        )),
    }
}

impl Possible {
    /// Judges `needs` on `platform`.
    pub fn of(needs: &[Need], platform: &Platform, stated: &Stated) -> Self {
        let (mut remarks, mut conditions) = (Vec::new(), Vec::new());
        for need in needs {
            match *need {
                Need::Posting if !platform.fabric.posted_capability.is_set() => {
                    return Self::No("the IOMMU does not post interrupts (capability register, bit 59)".into());
                }
                Need::Posting => {}
                Need::Kernel(major, minor) => match stated.kernel {
                    Some((has, sub)) if (has, sub) < (major, minor) => {
                        return Self::No(format!("Linux {has}.{sub} lacks it; it needs {major}.{minor}"));
                    }
                    Some(_) => {}
                    None => remarks.push(format!("Linux {major}.{minor} or later")),
                },
                Need::CustomKernel(why) => remarks.push(format!("custom kernel: {why}")),
                Need::Device(what, how) => match stated.device {
                    Some(true) => {}
                    Some(false) => return Self::No(format!("not here, as stated: {what}")),
                    None => conditions.push(format!("{what} ({how})")),
                },
                Need::Application(what) => remarks.push(format!("application: {what}")),
            }
        }
        if conditions.is_empty() { Self::Yes(remarks) } else { Self::If([conditions, remarks].concat()) }
    }

    /// How much is to be changed: 0 a setting or a parameter, 1 the application, 2 the kernel.
    pub fn effort(needs: &[Need]) -> u8 {
        let of = |need: &Need| match need {
            Need::Posting | Need::Kernel(..) | Need::Device(..) => 0,
            Need::Application(_) => 1,
            Need::CustomKernel(_) => 2,
        };
        needs.iter().map(of).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setting::Setting;

    #[test]
    fn posting_needs_the_capability_and_a_kernel_since_6_10() {
        let load = |name: &str| Platform::load(&Setting::new(Place::option("test"), "", name)).unwrap();
        let needs = [Need::Posting, Need::Kernel(6, 10)];
        let of = |platform: &str, kernel: &str| {
            let stated = Stated { kernel: Some(release(kernel).unwrap()), device: None };
            Possible::of(&needs, &load(platform), &stated)
        };
        assert_eq!(of("emr", "6.10.0-rc1"), Possible::Yes(vec![]));
        assert_eq!(of("emr", "6.9.12"), Possible::No("Linux 6.9 lacks it; it needs 6.10".into()));
        assert!(matches!(of("azure", "6.12"), Possible::No(why) if why.contains("bit 59")));
        assert!(
            matches!(Possible::of(&needs, &load("emr"), &Stated::default()), Possible::Yes(remarks) if remarks.len() == 1)
        );
        assert!(release("six").is_err());
    }

    #[test]
    fn what_only_the_device_can_say_is_a_condition_until_it_is_stated() {
        let emr = Platform::load(&Setting::new(Place::option("test"), "", "emr")).unwrap();
        let of = |device| Possible::of(&[Need::Device("a", "b")], &emr, &Stated { kernel: None, device });
        assert_eq!(of(None), Possible::If(vec!["a (b)".into()]));
        assert_eq!(of(Some(true)), Possible::Yes(vec![]));
        assert!(matches!(of(Some(false)), Possible::No(_)));
    }
}
