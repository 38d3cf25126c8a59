//! The structures of the C binding (GFD.230): each has its members in the order and of the types of drmaa2.h, and is read, made,
//! and freed by one table. Members that are unset have the binding's UNSET values.

#![allow(unsafe_code)]

use crate::collections::{self, CDict, CList, ListKind};
use crate::error::{DrmaaError, guarded, quietly};
use crate::memory;
use crate::values::{AttributeMap, AttributeValue, EXTRAS, MachineSlots, TextPair, VersionText};
use libc::{c_char, c_int, c_longlong, c_void, time_t};
use std::ptr::null_mut;

/// `DRMAA2_NOW`.
pub const NOW: i64 = -2;
/// `DRMAA2_INFINITE_TIME`.
pub const INFINITE_TIME: i64 = -1;
const UNSET_NUMBER: i64 = -1;
const UNSET_TIME: i64 = -3;

/// A member of a structure.
pub(crate) trait StructMember: Copy {
    /// Its value where nothing is set.
    const UNSET: Self;

    /// Its value.
    ///
    /// # Safety
    /// It is unset, or leads to a value of its type.
    unsafe fn read(self, name: &str) -> Result<Option<AttributeValue>, DrmaaError>;

    /// One of its own for a value; unset where its type has no such value.
    fn of(value: &AttributeValue) -> Self;

    /// Frees its value.
    ///
    /// # Safety
    /// As of [`read`](Self::read); nothing reads it any more.
    unsafe fn release(self) {}
}

/// `drmaa2_string`.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct CText(pub *mut c_char);

impl StructMember for CText {
    const UNSET: CText = CText(null_mut());

    unsafe fn read(self, name: &str) -> Result<Option<AttributeValue>, DrmaaError> {
        // SAFETY: as the caller promises.
        let own = unsafe { memory::text(self.0, name) }?;
        Ok(own.map(|own| AttributeValue::Text(own.to_owned())))
    }

    fn of(value: &AttributeValue) -> CText {
        match value {
            AttributeValue::Text(text) => CText(memory::string(text)),
            _ => CText::UNSET,
        }
    }

    unsafe fn release(self) {
        let mut own = self.0;
        // SAFETY: as the caller promises.
        unsafe { memory::free_string(&mut own) };
    }
}

/// A list of strings, or of machines with slots.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct CTexts(pub *mut CList);

impl CTexts {
    /// A list of copies of texts.
    pub(crate) fn of_texts<'a>(texts: impl Iterator<Item = &'a str>) -> CTexts {
        let items = texts.map(|text| memory::string(text).cast()).collect();
        CTexts(CList::made(ListKind::Strings, memory::free_entry, items))
    }

    fn of_machines(all: &[MachineSlots]) -> CTexts {
        let slots = |own: &MachineSlots| {
            let mut attributes = AttributeMap::default();
            attributes.put_text("machineName", own.machine.as_str());
            attributes.put("slots", own.slots.map(AttributeValue::Number));
            memory::placed(CSlotInfo::of(&attributes)).cast()
        };
        let items = all.iter().map(slots).collect();
        CTexts(CList::made(ListKind::Slots, free_slots, items))
    }

    /// Strings of a list; an empty or absent list is unset.
    ///
    /// # Safety
    /// It is null or a list whose entries are what its type says.
    unsafe fn texts(self, name: &str) -> Result<Vec<String>, DrmaaError> {
        // SAFETY: as the caller promises.
        let Some(own) = (unsafe { self.0.as_ref() }) else {
            return Ok(Vec::new());
        };
        let text = |item: *mut c_void| {
            let at = match own.is_of_slots() {
                // SAFETY: as the caller promises.
                true => unsafe { (*item.cast::<CSlotInfo>()).machineName.0 },
                false => item.cast(),
            };
            // SAFETY: as the caller promises.
            unsafe { memory::needed(at, name) }.map(str::to_owned)
        };
        own.items().into_iter().map(text).collect()
    }
}

impl StructMember for CTexts {
    const UNSET: CTexts = CTexts(null_mut());

    unsafe fn read(self, name: &str) -> Result<Option<AttributeValue>, DrmaaError> {
        // SAFETY: as the caller promises.
        let all = unsafe { self.texts(name) }?;
        Ok(Some(all)
            .filter(|all| !all.is_empty())
            .map(AttributeValue::Texts))
    }

    fn of(value: &AttributeValue) -> CTexts {
        match value {
            AttributeValue::Texts(all) => CTexts::of_texts(all.iter().map(String::as_str)),
            AttributeValue::Machines(all) => CTexts::of_machines(all),
            _ => CTexts::UNSET,
        }
    }

    unsafe fn release(self) {
        let mut own = self.0;
        // SAFETY: as the caller promises.
        unsafe { collections::drmaa2_list_free(&mut own) };
    }
}

/// `drmaa2_dict`.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct CPairs(pub *mut CDict);

impl StructMember for CPairs {
    const UNSET: CPairs = CPairs(null_mut());

    unsafe fn read(self, name: &str) -> Result<Option<AttributeValue>, DrmaaError> {
        // SAFETY: as the caller promises.
        let Some(own) = (unsafe { self.0.as_ref() }) else {
            return Ok(None);
        };
        let pair = |(key, value): (*mut c_char, *mut c_char)| {
            // SAFETY: entries are strings.
            let (key, value) =
                unsafe { (memory::needed(key, name)?, memory::needed(value, name)?) };
            Ok(TextPair {
                key: key.to_owned(),
                value: value.to_owned(),
            })
        };
        let all: Vec<TextPair> = own
            .entries()
            .into_iter()
            .map(pair)
            .collect::<Result<_, DrmaaError>>()?;
        Ok(Some(all)
            .filter(|all| !all.is_empty())
            .map(AttributeValue::Pairs))
    }

    fn of(value: &AttributeValue) -> CPairs {
        let AttributeValue::Pairs(all) = value else {
            return CPairs::UNSET;
        };
        let own = CDict::made();
        for pair in all {
            // SAFETY: it was made just now.
            unsafe { (*own).set(&pair.key, &pair.value) };
        }
        CPairs(own)
    }

    unsafe fn release(self) {
        let mut own = self.0;
        // SAFETY: as the caller promises.
        unsafe { collections::drmaa2_dict_free(&mut own) };
    }
}

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident($kind:ty) unset $unset:expr;)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        #[repr(transparent)]
        pub struct $name(pub $kind);

        impl StructMember for $name {
            const UNSET: $name = $name($unset);

            unsafe fn read(self, _name: &str) -> Result<Option<AttributeValue>, DrmaaError> {
                let is_set = self.0 != $unset;
                Ok(is_set.then(|| AttributeValue::Number(i64::from(self.0))))
            }

            fn of(value: &AttributeValue) -> $name {
                match value {
                    AttributeValue::Number(number) => {
                        <$kind>::try_from(*number).map_or($name::UNSET, $name)
                    }
                    _ => $name::UNSET,
                }
            }
        }
    )* };
}

numbers! {
    /// `long long`.
    CNumber(c_longlong) unset UNSET_NUMBER;
    /// `int`, or a member of an enumeration.
    CChoice(c_int) unset -1;
    /// A time, or an amount of it, in seconds.
    CTime(time_t) unset UNSET_TIME;
}

/// `drmaa2_bool`.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct CBool(pub c_int);

impl StructMember for CBool {
    const UNSET: CBool = CBool(0);

    unsafe fn read(self, _name: &str) -> Result<Option<AttributeValue>, DrmaaError> {
        Ok((self.0 == 1).then_some(AttributeValue::True))
    }

    fn of(value: &AttributeValue) -> CBool {
        CBool(c_int::from(*value == AttributeValue::True))
    }
}

/// `float`.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct CReal(pub f32);

impl StructMember for CReal {
    const UNSET: CReal = CReal(-1.0);

    unsafe fn read(self, _name: &str) -> Result<Option<AttributeValue>, DrmaaError> {
        Ok((self.0 >= 0.0).then_some(AttributeValue::Real(self.0)))
    }

    fn of(value: &AttributeValue) -> CReal {
        match value {
            AttributeValue::Real(own) => CReal(*own),
            _ => CReal::UNSET,
        }
    }
}

/// `drmaa2_version`.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct CVersionAt(pub *mut CVersion);

impl StructMember for CVersionAt {
    const UNSET: CVersionAt = CVersionAt(null_mut());

    unsafe fn read(self, name: &str) -> Result<Option<AttributeValue>, DrmaaError> {
        // SAFETY: as the caller promises.
        let Some(own) = (unsafe { self.0.as_ref() }) else {
            return Ok(None);
        };
        // SAFETY: as the caller promises.
        let part = |at: CText| unsafe { memory::text(at.0, name) };
        Ok(Some(AttributeValue::Version(VersionText {
            major: part(own.major)?.unwrap_or_default().to_owned(),
            minor: part(own.minor)?.unwrap_or_default().to_owned(),
        })))
    }

    fn of(value: &AttributeValue) -> CVersionAt {
        match value {
            AttributeValue::Version(own) => CVersionAt(version(own)),
            _ => CVersionAt::UNSET,
        }
    }

    unsafe fn release(self) {
        let mut own = self.0;
        // SAFETY: as the caller promises.
        unsafe { drmaa2_version_free(&mut own) };
    }
}

/// A version for a program.
pub(crate) fn version(own: &VersionText) -> *mut CVersion {
    let mut attributes = AttributeMap::default();
    attributes.put("major", AttributeValue::Text(own.major.clone()));
    attributes.put("minor", AttributeValue::Text(own.minor.clone()));
    memory::placed(CVersion::of(&attributes))
}

macro_rules! structures {
    ($($(#[$doc:meta])* $name:ident freed by $free:ident { $($member:ident: $kind:ty,)* })*) => { $(
        $(#[$doc])*
        #[allow(non_snake_case, missing_docs)]
        #[derive(Clone, Copy, Debug)]
        #[repr(C)]
        pub struct $name {
            $(pub $member: $kind,)*
            pub implementationSpecific: CPairs,
        }

        impl $name {
            /// Nothing is set.
            pub const UNSET: $name = $name {
                $($member: <$kind>::UNSET,)*
                implementationSpecific: CPairs::UNSET,
            };

            /// Attributes that are set.
            ///
            /// # Safety
            /// Members are unset or lead to values of their types.
            pub unsafe fn attributes(&self) -> Result<AttributeMap, DrmaaError> {
                let mut all = AttributeMap::default();
                // SAFETY: as the caller promises.
                unsafe {
                    $(all.put(stringify!($member), self.$member.read(stringify!($member))?);)*
                    all.put(EXTRAS, self.implementationSpecific.read(EXTRAS)?);
                }
                Ok(all)
            }

            /// A structure of its own memory.
            pub fn of(attributes: &AttributeMap) -> $name {
                let member = |name: &str| attributes.get(name);
                $name {
                    $($member: member(stringify!($member)).map_or(<$kind>::UNSET, StructMember::of),)*
                    implementationSpecific: member(EXTRAS).map_or(CPairs::UNSET, StructMember::of),
                }
            }
        }

        /// Frees a structure and its values.
        ///
        /// # Safety
        /// `at` is null or leads to null or to a structure in memory from malloc(3).
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $free(at: *mut *mut $name) {
            // SAFETY: as the caller promises.
            quietly(|| unsafe {
                let Some(mut own) = memory::taken(at) else {
                    return;
                };
                $((*own).$member.release();)*
                (*own).implementationSpecific.release();
                memory::free_placed(&mut own);
            });
        }
    )* };
}

structures! {
    /// `drmaa2_jtemplate_s`.
    CJobTemplate freed by drmaa2_jtemplate_free {
        remoteCommand: CText,
        args: CTexts,
        submitAsHold: CBool,
        rerunnable: CBool,
        jobEnvironment: CPairs,
        workingDirectory: CText,
        jobCategory: CText,
        email: CTexts,
        emailOnStarted: CBool,
        emailOnTerminated: CBool,
        jobName: CText,
        inputPath: CText,
        outputPath: CText,
        errorPath: CText,
        joinFiles: CBool,
        reservationId: CText,
        queueName: CText,
        minSlots: CNumber,
        maxSlots: CNumber,
        priority: CNumber,
        candidateMachines: CTexts,
        minPhysMemory: CNumber,
        machineOS: CChoice,
        machineArch: CChoice,
        startTime: CTime,
        deadlineTime: CTime,
        stageInFiles: CPairs,
        stageOutFiles: CPairs,
        resourceLimits: CPairs,
        accountingId: CText,
    }

    /// `drmaa2_jinfo_s`.
    CJobInfo freed by drmaa2_jinfo_free {
        jobId: CText,
        jobName: CText,
        exitStatus: CChoice,
        terminatingSignal: CText,
        annotation: CText,
        jobState: CChoice,
        jobSubState: CText,
        allocatedMachines: CTexts,
        submissionMachine: CText,
        jobOwner: CText,
        slots: CNumber,
        queueName: CText,
        wallclockTime: CTime,
        cpuTime: CNumber,
        submissionTime: CTime,
        dispatchTime: CTime,
        finishTime: CTime,
    }

    /// `drmaa2_slotinfo_s`.
    CSlotInfo freed by drmaa2_slotinfo_free {
        machineName: CText,
        slots: CNumber,
    }

    /// `drmaa2_rtemplate_s`.
    CReservationTemplate freed by drmaa2_rtemplate_free {
        reservationName: CText,
        startTime: CTime,
        endTime: CTime,
        duration: CTime,
        minSlots: CNumber,
        maxSlots: CNumber,
        jobCategory: CText,
        usersACL: CTexts,
        candidateMachines: CTexts,
        minPhysMemory: CNumber,
        machineOS: CChoice,
        machineArch: CChoice,
    }

    /// `drmaa2_rinfo_s`.
    CReservationInfo freed by drmaa2_rinfo_free {
        reservationId: CText,
        reservationName: CText,
        reservedStartTime: CTime,
        reservedEndTime: CTime,
        usersACL: CTexts,
        reservedSlots: CNumber,
        reservedMachines: CTexts,
    }

    /// `drmaa2_notification_s`.
    CNotification freed by drmaa2_notification_free {
        event: CChoice,
        jobId: CText,
        sessionName: CText,
        jobState: CChoice,
    }

    /// `drmaa2_queueinfo_s`.
    CQueueInfo freed by drmaa2_queueinfo_free {
        name: CText,
    }

    /// `drmaa2_version_s`.
    CVersion freed by drmaa2_version_free {
        major: CText,
        minor: CText,
    }

    /// `drmaa2_machineinfo_s`.
    CMachineInfo freed by drmaa2_machineinfo_free {
        name: CText,
        available: CBool,
        sockets: CNumber,
        coresPerSocket: CNumber,
        threadsPerCore: CNumber,
        load: CReal,
        physMemory: CNumber,
        virtMemory: CNumber,
        machineArch: CChoice,
        machineOSVersion: CVersionAt,
        machineOS: CChoice,
    }
}

macro_rules! creators {
    ($($create:ident $name:ident;)*) => { $(
        /// A structure in which nothing is set.
        #[unsafe(no_mangle)]
        pub extern "C" fn $create() -> *mut $name {
            guarded(null_mut(), || Ok(memory::placed($name::UNSET)))
        }
    )* };
}

creators! {
    drmaa2_jtemplate_create CJobTemplate;
    drmaa2_jinfo_create CJobInfo;
    drmaa2_rtemplate_create CReservationTemplate;
    drmaa2_rinfo_create CReservationInfo;
}

macro_rules! entries {
    ($($name:ident by $free:ident;)*) => { $(
        /// Frees an entry of a list.
        ///
        /// # Safety
        /// As of the called function.
        pub(crate) unsafe extern "C" fn $name(at: *mut *mut c_void) {
            // SAFETY: as the caller promises.
            unsafe { $free(at.cast()) };
        }
    )* };
}

entries! {
    free_slots by drmaa2_slotinfo_free;
    free_queue by drmaa2_queueinfo_free;
    free_machine by drmaa2_machineinfo_free;
    free_job by drmaa2_j_free;
    free_reservation by drmaa2_r_free;
}

/// `drmaa2_j_s`. Programs make some of their own, of which the first two members count.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CJob {
    /// `17`, or `17.3` for a task.
    pub id: *mut c_char,
    /// The session; null where none is known.
    pub session: *mut c_char,
    /// The job's name, in the memory of this structure, for programs to read.
    pub name: *mut c_char,
}

/// `drmaa2_jarray_s`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CJobArray {
    /// The number.
    pub id: *mut c_char,
    /// The jobs.
    pub jobs: *mut CList,
    /// The session.
    pub session: *mut c_char,
}

/// `drmaa2_jsession_s` and `drmaa2_rsession_s`. A closed one has no contact.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CSession {
    /// The path of the cluster's slurm.conf.
    pub contact: *mut c_char,
    /// The name.
    pub name: *mut c_char,
}

/// `drmaa2_msession_s`. A closed one has no name.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CMonitor {
    /// The name.
    pub name: *mut c_char,
}

/// `drmaa2_r_s`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CReservation {
    /// The name of the reservation among Slurm's.
    pub id: *mut c_char,
    /// The session; null where none is known.
    pub session: *mut c_char,
}

macro_rules! handles {
    ($($free:ident $name:ident { $($member:ident)* })*) => { $(
        /// Frees a handle.
        ///
        /// # Safety
        /// `at` is null or leads to null or to a handle in memory from malloc(3).
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $free(at: *mut *mut $name) {
            // SAFETY: as the caller promises.
            quietly(|| unsafe {
                let Some(mut own) = memory::taken(at) else {
                    return;
                };
                $(memory::free_string(&mut (*own).$member);)*
                memory::free_placed(&mut own);
            });
        }
    )* };
}

handles! {
    drmaa2_j_free CJob { id session }
    drmaa2_jsession_free CSession { contact name }
    drmaa2_rsession_free CSession { contact name }
    drmaa2_msession_free CMonitor { name }
    drmaa2_r_free CReservation { id session }
}

/// Frees a job array and the jobs in it.
///
/// # Safety
/// `at` is null or leads to null or to a job array in memory from malloc(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drmaa2_jarray_free(at: *mut *mut CJobArray) {
    // SAFETY: as the caller promises.
    quietly(|| unsafe {
        let Some(mut own) = memory::taken(at) else {
            return;
        };
        memory::free_string(&mut (*own).id);
        memory::free_string(&mut (*own).session);
        collections::drmaa2_list_free(&mut (*own).jobs);
        memory::free_placed(&mut own);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes and places that programs and bindings were compiled with on 64-bit machines.
    #[test]
    fn structures_are_those_of_the_binding() {
        use std::mem::offset_of;
        assert_eq!(size_of::<CJobTemplate>(), 224);
        assert_eq!(offset_of!(CJobTemplate, jobEnvironment), 24);
        assert_eq!(offset_of!(CJobTemplate, email), 48);
        assert_eq!(offset_of!(CJobTemplate, minSlots), 120);
        assert_eq!(offset_of!(CJobTemplate, machineArch), 164);
        assert_eq!(offset_of!(CJobTemplate, accountingId), 208);
        assert_eq!(size_of::<CJobInfo>(), 144);
        assert_eq!(offset_of!(CJobInfo, jobName), 8);
        assert_eq!(offset_of!(CJobInfo, jobState), 40);
        assert_eq!(offset_of!(CJobInfo, allocatedMachines), 56);
        assert_eq!(offset_of!(CJobInfo, finishTime), 128);
        assert_eq!(size_of::<CReservationTemplate>(), 96);
        assert_eq!(size_of::<CReservationInfo>(), 64);
        assert_eq!(size_of::<CNotification>(), 40);
        assert_eq!(size_of::<CMachineInfo>(), 96);
        assert_eq!(offset_of!(CMachineInfo, machineArch), 64);
        assert_eq!(offset_of!(CMachineInfo, machineOS), 80);
        assert_eq!((size_of::<CSlotInfo>(), size_of::<CVersion>()), (24, 24));
        assert_eq!((size_of::<CQueueInfo>(), size_of::<CJob>()), (16, 24));
    }

    #[test]
    fn what_is_set_comes_back_and_the_rest_is_unset() {
        let mut own = drmaa2_jtemplate_create();
        // SAFETY: it was made just now, and is freed once.
        unsafe {
            assert_eq!((*own).attributes().unwrap(), AttributeMap::default());
            assert_eq!(((*own).minSlots.0, (*own).startTime.0), (-1, -3));
            let mut given = AttributeMap::default();
            given.put_text("remoteCommand", "/bin/true");
            given.put(
                "args",
                AttributeValue::Texts(vec![String::new(), "b".to_owned()]),
            );
            given.put("joinFiles", AttributeValue::True);
            given.put("startTime", AttributeValue::Number(NOW));
            let pair = TextPair {
                key: "WALLCLOCK_TIME".to_owned(),
                value: "60".to_owned(),
            };
            given.put("resourceLimits", AttributeValue::Pairs(vec![pair]));
            let mut made = memory::placed(CJobTemplate::of(&given));
            assert_eq!((*made).attributes().unwrap(), given);
            drmaa2_jtemplate_free(&mut made);
            drmaa2_jtemplate_free(&mut own);
            assert!(own.is_null() && made.is_null());
            drmaa2_jtemplate_free(null_mut());
            drmaa2_j_free(&mut null_mut());
        }
    }

    #[test]
    fn machines_with_slots_are_names_where_they_are_asked_for() {
        let mut info = AttributeMap::default();
        let own = MachineSlots {
            machine: "n1".to_owned(),
            slots: Some(2),
        };
        info.put("allocatedMachines", AttributeValue::Machines(vec![own]));
        let mut made = memory::placed(CJobInfo::of(&info));
        // SAFETY: it was made just now, and is freed once.
        unsafe {
            let read = (*made).attributes().unwrap();
            assert_eq!(read.texts("allocatedMachines"), ["n1"]);
            drmaa2_jinfo_free(&mut made);
        }
    }
}
