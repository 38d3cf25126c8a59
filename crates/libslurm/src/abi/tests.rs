//! Layouts of the structures, as a C compiler has them for the header.

use super::{accounting, cluster, config, jobs, parts, requests};
use std::fmt::Write as _;
use std::process::Command;

fn layouts() -> Vec<String> {
    use {accounting::*, cluster::*, config::*, jobs::*, parts::*, requests::*};
    [
        SlurmStepId::layout(),
        SlurmJobInfo::layout(),
        SlurmJobInfoMsg::layout(),
        SlurmStepInfo::layout(),
        SlurmStepInfoMsg::layout(),
        SlurmStepLayout::layout(),
        SlurmStepPids::layout(),
        SlurmStepPidsMsg::layout(),
        SlurmStepStat::layout(),
        SlurmStepStatMsg::layout(),
        SlurmPriorityFactors::layout(),
        SlurmPriorityFactorsMsg::layout(),
        SlurmEnergy::layout(),
        SlurmSensors::layout(),
        SlurmPower::layout(),
        SlurmNodeInfo::layout(),
        SlurmNodeInfoMsg::layout(),
        SlurmNodeUpdate::layout(),
        SlurmPartitionInfo::layout(),
        SlurmPartitionInfoMsg::layout(),
        SlurmPartitionName::layout(),
        SlurmCoreSpec::layout(),
        SlurmReservationInfo::layout(),
        SlurmReservationInfoMsg::layout(),
        SlurmReservationDesc::layout(),
        SlurmReservationName::layout(),
        SlurmLicenseInfo::layout(),
        SlurmLicenseInfoMsg::layout(),
        SlurmTopoInfo::layout(),
        SlurmTopoInfoMsg::layout(),
        SlurmFrontEndInfoMsg::layout(),
        SlurmPluginData::layout(),
        SlurmHash::layout(),
        SlurmJobDesc::layout(),
        SlurmSubmitResponse::layout(),
        SlurmAllocation::layout(),
        SlurmWillRun::layout(),
        SlurmJobArrayAnswers::layout(),
        SlurmStepUpdate::layout(),
        SlurmStatistics::layout(),
        SlurmStatisticsRequest::layout(),
        SlurmTriggerInfo::layout(),
        SlurmTriggerInfoMsg::layout(),
        SlurmSelectedStep::layout(),
        SlurmConf::layout(),
        SlurmdbTres::layout(),
        SlurmdbStats::layout(),
        SlurmdbStep::layout(),
        SlurmdbJob::layout(),
        SlurmdbJobCond::layout(),
        SlurmdbFederation::layout(),
        SlurmdbCluster::layout(),
        SlurmdbClusterCond::layout(),
        SlurmdbAssoc::layout(),
        SlurmdbAssocCond::layout(),
        SlurmdbQos::layout(),
        SlurmdbQosCond::layout(),
        SlurmdbTresCond::layout(),
        SlurmdbEvent::layout(),
        SlurmdbEventCond::layout(),
        SlurmdbReservation::layout(),
        SlurmdbReservationCond::layout(),
        SlurmdbUser::layout(),
        SlurmdbUserCond::layout(),
        SlurmdbAccount::layout(),
        SlurmdbAccountCond::layout(),
        SlurmdbCoord::layout(),
    ]
    .concat()
}

/// A program that prints the lines by the header.
fn program(lines: &[String]) -> String {
    let mut text = String::from(
        "#include <stddef.h>\n#include <stdio.h>\n#include <slurm/slurm.h>\n#include <slurm/slurmdb.h>\n\
         #define T(t) printf(#t \" %zu\\n\", sizeof(t))\n\
         #define M(t, m) printf(#t \".\" #m \" %zu %zu\\n\", offsetof(t, m), sizeof(((t *)0)->m))\n\
         int main(void) {\n",
    );
    for line in lines {
        let name = line.split(' ').next().unwrap_or_default();
        let _ = match name.split_once('.') {
            Some((kind, member)) => writeln!(text, "M({kind}, {member});"),
            None => writeln!(text, "T({name});"),
        };
    }
    text.push_str("return 0; }\n");
    text
}

#[test]
fn structures_are_laid_out_as_the_header_has_them() {
    let lines = layouts();
    assert!(lines.len() > 1000, "{}", lines.len());
    let place = std::env::temp_dir().join(format!("muster-libslurm-{}", std::process::id()));
    std::fs::create_dir_all(&place).unwrap();
    let (source, built) = (place.join("layout.c"), place.join("layout"));
    std::fs::write(&source, program(&lines)).unwrap();
    let include = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/slurm");
    let mut compiler = Command::new("cc");
    compiler.args(["-Wall", "-Wextra", "-Werror", "-I", include, "-o"]);
    assert!(
        compiler
            .arg(&built)
            .arg(&source)
            .status()
            .unwrap()
            .success()
    );
    let printed = Command::new(&built).output().unwrap();
    let printed = String::from_utf8(printed.stdout).unwrap();
    let _ = std::fs::remove_dir_all(&place);
    for (own, header) in lines.iter().zip(printed.lines()) {
        assert_eq!(own, header, "the header's on the right");
    }
    assert_eq!(printed.lines().count(), lines.len());
}
