//! Implementation-specific attributes: their names begin with the structure that they are of, so that a name says where in an instance
//! its value is.

#![allow(unsafe_code)]

use crate::abi::{CJobInfo, CJobTemplate, CPairs, CReservationInfo, CReservationTemplate, CTexts};
use crate::collections::{CDict, CList, drmaa2_dict_del, drmaa2_dict_get};
use crate::error::{DrmaaCode, DrmaaError, guarded, numbered};
use crate::{memory, records, reservations, submission};
use libc::{c_char, c_int, c_void};
use std::ffi::CString;
use std::ptr::null_mut;

/// An implementation-specific attribute.
#[derive(Clone, Copy, Debug)]
struct Extension {
    name: &'static str,
    description: &'static str,
    owner: ExtendedStruct,
}

/// The structure that an attribute is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExtendedStruct {
    JobTemplate,
    JobInfo,
    ReservationTemplate,
    ReservationInfo,
}

fn all() -> impl Iterator<Item = Extension> {
    let of = |owner: ExtendedStruct, list: &'static [(&'static str, &'static str)]| {
        list.iter().map(move |(name, description)| Extension {
            name,
            description,
            owner,
        })
    };
    const TEMPLATE: [(&str, &str); 1] = [(
        submission::OPTIONS,
        "further options of sbatch, as a shell would have them",
    )];
    const RESERVATION: [(&str, &str); 1] =
        [(reservations::PARTITION, "partition that the slots are of")];
    of(ExtendedStruct::JobTemplate, &TEMPLATE)
        .chain(of(ExtendedStruct::JobInfo, &records::EXTRA_NAMES))
        .chain(of(ExtendedStruct::ReservationTemplate, &RESERVATION))
        .chain(of(
            ExtendedStruct::ReservationInfo,
            &reservations::INFO_EXTRAS,
        ))
}

fn find(name: &str) -> Result<Extension, DrmaaError> {
    all().find(|own| own.name == name).ok_or_else(|| {
        DrmaaError::new(
            DrmaaCode::UnsupportedAttribute,
            format!(
                "there is no implementation-specific attribute \"{name:.100}\"; others are members of their structures"
            ),
        )
    })
}

/// Where an instance has its implementation-specific attributes.
///
/// # Safety
/// `instance` is a structure of the owner.
unsafe fn attributes_of(owner: ExtendedStruct, instance: *mut c_void) -> *mut CPairs {
    // SAFETY: as the caller promises.
    unsafe {
        match owner {
            ExtendedStruct::JobTemplate => {
                &raw mut (*instance.cast::<CJobTemplate>()).implementationSpecific
            }
            ExtendedStruct::JobInfo => {
                &raw mut (*instance.cast::<CJobInfo>()).implementationSpecific
            }
            ExtendedStruct::ReservationTemplate => {
                &raw mut (*instance.cast::<CReservationTemplate>()).implementationSpecific
            }
            ExtendedStruct::ReservationInfo => {
                &raw mut (*instance.cast::<CReservationInfo>()).implementationSpecific
            }
        }
    }
}

fn non_null(instance: *const c_void) -> Result<*mut c_void, DrmaaError> {
    match instance.is_null() {
        true => Err(DrmaaError::argument("the instance is null")),
        false => Ok(instance.cast_mut()),
    }
}

/// The value of an attribute; null where it is unset.
///
/// # Safety
/// `instance` is null or a structure that has the attribute; `name` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drmaa2_get_instance_value(
    instance: *const c_void,
    name: *const c_char,
) -> *mut c_char {
    guarded(null_mut(), || {
        // SAFETY: as the caller promises.
        unsafe {
            let own = find(memory::needed(name, "name")?)?;
            let pairs = (*attributes_of(own.owner, non_null(instance)?)).0;
            if pairs.is_null() || crate::collections::drmaa2_dict_has(pairs, name) == 0 {
                return Ok(null_mut());
            }
            Ok(memory::copy(drmaa2_dict_get(pairs, name)))
        }
    })
}

/// Sets an attribute; an empty value unsets it.
///
/// # Safety
/// `instance` is null or a structure that has the attribute; the others are null or strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drmaa2_set_instance_value(
    instance: *mut c_void,
    name: *const c_char,
    value: *const c_char,
) -> c_int {
    numbered(|| {
        // SAFETY: as the caller promises.
        unsafe {
            let name = memory::needed(name, "name")?;
            let own = find(name)?;
            let place = attributes_of(own.owner, non_null(instance)?);
            let value = memory::text(value, "value")?.filter(|value| !value.is_empty());
            let pairs = (*place).0;
            match value {
                None if pairs.is_null() => {}
                None => {
                    let key = CString::new(own.name).unwrap_or_default();
                    if crate::collections::drmaa2_dict_has(pairs, key.as_ptr()) != 0 {
                        drmaa2_dict_del(pairs, key.as_ptr());
                    }
                }
                Some(value) => {
                    if pairs.is_null() {
                        (*place).0 = CDict::made();
                    }
                    (*(*place).0).set(own.name, value);
                }
            }
            Ok(())
        }
    })
}

/// Description of an attribute. The instance does not matter.
///
/// # Safety
/// `name` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drmaa2_describe_attribute(
    _instance: *const c_void,
    name: *const c_char,
) -> *mut c_char {
    guarded(null_mut(), || {
        // SAFETY: as the caller promises.
        let own = find(unsafe { memory::needed(name, "name") }?)?;
        Ok(memory::string(own.description))
    })
}

fn names(owner: Option<ExtendedStruct>) -> *mut CList {
    guarded(null_mut(), || {
        let own = all().filter(|own| Some(own.owner) == owner);
        Ok(CTexts::of_texts(own.map(|own| own.name)).0)
    })
}

macro_rules! lists {
    ($($name:ident $owner:expr;)*) => { $(
        /// The names of a structure's implementation-specific attributes.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> *mut CList {
            names($owner)
        }
    )* };
}

lists! {
    drmaa2_jtemplate_impl_spec Some(ExtendedStruct::JobTemplate);
    drmaa2_jinfo_impl_spec Some(ExtendedStruct::JobInfo);
    drmaa2_rtemplate_impl_spec Some(ExtendedStruct::ReservationTemplate);
    drmaa2_rinfo_impl_spec Some(ExtendedStruct::ReservationInfo);
    drmaa2_queueinfo_impl_spec None;
    drmaa2_machineinfo_impl_spec None;
    drmaa2_notification_impl_spec None;
    drmaa2_version_impl_spec None;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{drmaa2_jtemplate_create, drmaa2_jtemplate_free};
    use crate::collections::{drmaa2_list_free, drmaa2_list_size};
    use crate::error::last;
    use std::ffi::CStr;

    #[test]
    fn values_are_set_changed_and_unset() {
        let mut own = drmaa2_jtemplate_create();
        let name = CString::new(submission::OPTIONS).unwrap();
        // SAFETY: it was made just now, and is freed once.
        unsafe {
            assert!(drmaa2_get_instance_value(own.cast(), name.as_ptr()).is_null());
            assert_eq!(last(), None, "it is unset");
            assert_eq!(
                drmaa2_set_instance_value(own.cast(), name.as_ptr(), c"".as_ptr()),
                0
            );
            for value in [c"--a", c"--b"] {
                let set = drmaa2_set_instance_value(own.cast(), name.as_ptr(), value.as_ptr());
                assert_eq!(set, 0);
                let mut got = drmaa2_get_instance_value(own.cast(), name.as_ptr());
                assert_eq!(CStr::from_ptr(got), value);
                memory::free_string(&mut got);
            }
            let read = (*own).attributes().unwrap();
            assert_eq!(read.extra(submission::OPTIONS), Some("--b"));
            assert_eq!(
                drmaa2_set_instance_value(own.cast(), name.as_ptr(), std::ptr::null()),
                0
            );
            assert!(drmaa2_get_instance_value(own.cast(), name.as_ptr()).is_null());
            drmaa2_jtemplate_free(&mut own);
        }
    }

    #[test]
    fn attributes_have_names_and_descriptions() {
        let mut names = drmaa2_jinfo_impl_spec();
        let unknown = c"jobName";
        // SAFETY: null and strings are allowed; the list is freed once.
        unsafe {
            assert_eq!(drmaa2_list_size(names), 7);
            drmaa2_list_free(&mut names);
            let mut text = drmaa2_describe_attribute(std::ptr::null(), c"muster_ji_qos".as_ptr());
            assert_eq!(CStr::from_ptr(text), c"quality of service");
            memory::free_string(&mut text);
            assert!(drmaa2_describe_attribute(std::ptr::null(), unknown.as_ptr()).is_null());
            assert_eq!(
                last().map(|e| e.code),
                Some(DrmaaCode::UnsupportedAttribute)
            );
            let none = std::ptr::null_mut();
            assert_eq!(
                drmaa2_set_instance_value(none, c"muster_ji_qos".as_ptr(), none.cast()),
                7
            );
            assert_eq!(drmaa2_set_instance_value(none, none.cast(), none.cast()), 7);
        }
        let prefixes: Vec<&str> = all().map(|own| &own.name[..9]).collect();
        assert!(
            prefixes.iter().all(|own| own.starts_with("muster_")),
            "{prefixes:?}"
        );
    }
}
