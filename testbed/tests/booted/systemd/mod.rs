//! Services under a real systemd: Debian's, with udev, as the first process of a PID namespace in a booted
//! guest. Its root is a tree in memory; devices, sysfs and udev's events are the guest's own. One guest
//! serves all scenes, because its boots take most of the time.

mod check;
mod device;
mod guest;
mod service;

use vgpu_testbed::announce;
use vgpu_testbed::backends::Backend;
use vgpu_testbed::programs;

use guest::SystemdGuest;

#[test]
fn services_live_under_systemd() {
    let backend = Backend::Cuda12.folder().unwrap();
    let [programs, shims] = [programs::device(), programs::shim("libcuda.so.1")]
        .map(|path| path.unwrap().parent().unwrap().to_owned());
    // In the directory of the programs.
    let standin = programs::standin().unwrap();
    announce("systemd: boot a guest");
    let mut guest = SystemdGuest::start("soft", &[programs.clone(), backend.clone(), shims.clone()]);
    guest.outside(&check::release(&programs, &backend));
    announce("systemd: a service from its first day to its last");
    service::from_its_first_day_to_its_last(&mut guest, &standin);
    announce("systemd: check examines the service, and its remedies mend it");
    check::examines_the_service_and_its_remedies_mend_it(&mut guest, &programs);
    announce("systemd: a device from its start to its end");
    device::from_its_start_to_its_end(&mut guest, &programs, &shims);
}
