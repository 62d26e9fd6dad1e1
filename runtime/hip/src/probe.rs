//! What a host has for HIP: `warpline doctor` calls it, in a process of its own, because a runtime can crash or hang. It creates no stream.

use crate::driver::{Driver, LIBRARIES};

/// The HIP runtime of this host.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct HipProbe {
    /// The name under which the library was found.
    pub library: &'static str,
    /// Why there is no usable runtime, with the remedy. The other fields are empty then.
    pub unusable: Option<String>,
    /// The runtime's version, as 10,000,000 × major + 100,000 × minor + patch.
    pub version: Option<i32>,
    /// The optional symbols that the runtime lacks.
    pub missing: Vec<&'static str>,
    /// Whether the runtime works and finds no device.
    pub has_no_device: bool,
    /// Why the devices are not known.
    pub not_initialised: Option<String>,
    /// The names of the devices, in the runtime's order.
    pub devices: Vec<String>,
}

/// Asks the runtime. It initialises the runtime, as any call does.
pub fn hip() -> HipProbe {
    let driver = match Driver::get() {
        Ok(driver) => driver,
        Err(error) => {
            return HipProbe { library: LIBRARIES[0], unusable: Some(error.0), ..HipProbe::default() };
        }
    };
    let (library, version, missing) = (driver.library, driver.version(), driver.lacking());
    let mut found = HipProbe { library, version, missing, ..HipProbe::default() };
    let count = match driver.device_count() {
        Ok(count) => count,
        Err(error) => {
            found.has_no_device = error.is_no_device();
            found.not_initialised = (!found.has_no_device).then(|| driver.describe(error).0);
            return found;
        }
    };
    for ordinal in 0..count {
        match driver.device_name(ordinal) {
            Ok(name) => found.devices.push(name),
            Err(error) => found.not_initialised = Some(driver.describe(error).0),
        }
    }
    found
}
