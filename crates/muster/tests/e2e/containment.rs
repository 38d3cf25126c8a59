//! What one user's processes can reach of other users' and of root's, and that a job's processes die with it.

use crate::cluster::{Cluster, Ran, ran};

/// A component for libpmix. Its constructor runs as soon as the library opens it, in whatever process that is; it looks for
/// another user's secret in all memory of the process and notes what the process has. The secret is compared in pieces, so
/// that it is not in the component itself.
const COMPONENT: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
static char buffer[1 << 20];
__attribute__((constructor)) static void look(void) {
  char name[4096], line[512];
  snprintf(name, sizeof name, "%s/component.out", getenv("HOME"));
  prctl(PR_SET_DUMPABLE, 1);
  FILE *out = fopen(name, "w"), *maps = fopen("/proc/self/maps", "r");
  int mem = open("/proc/self/mem", O_RDONLY);
  if (!out || !maps || mem < 0) return;
  unsigned long found = 0, bytes = 0, from, until;
  char perms[8];
  while (fgets(line, sizeof line, maps)) {
    if (sscanf(line, "%lx-%lx %7s", &from, &until, perms) != 3 || perms[0] != 'r') continue;
    while (from < until) {
      unsigned long wanted = until - from;
      if (wanted > sizeof buffer) wanted = sizeof buffer;
      if (from == (unsigned long)buffer) break;
      ssize_t got = pread(mem, buffer, wanted, from);
      if (got <= 0) break;
      bytes += got;
      for (ssize_t i = 0; i + 15 < got; i++)
        found += !memcmp(buffer + i, "TOKEN_", 6) && !memcmp(buffer + i + 6, "OF_ALICE", 8);
      from += got;
    }
  }
  fprintf(out, "secrets %lu\nmegabytes %s\n", found, bytes >> 20 ? "some" : "none");
  for (int fd = 0; fd < 1024; fd++) {
    char link[64], target[256];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, target, sizeof target - 1);
    if (length <= 0) continue;
    target[length] = 0;
    if (target[0] == '/') fprintf(out, "file %s\n", target);
  }
  FILE *status = fopen("/proc/self/status", "r"), *environment = fopen("/proc/self/environ", "r");
  while (fgets(line, sizeof line, status))
    if (!strncmp(line, "NoNewPrivs", 10) || !strncmp(line, "Uid", 3)) fputs(line, out);
  fputs("environment ", out);
  for (int c; (c = fgetc(environment)) != EOF;) fputc(c ? c : ' ', out);
  fputs("\n", out);
  fclose(out);
}
"#;

/// Runs a command as `nobody`.
fn as_nobody(c: &Cluster, script: &str) -> Ran {
    let quoted = script.replace('\'', "'\\''");
    ran(c
        .command(&format!(
            "setpriv --reuid=65534 --regid=65534 --clear-groups timeout 60 bash -c '{quoted}'"
        ))
        .output()
        .unwrap())
}

/// Whether there are several users to test with. Says so if not.
fn is_root(c: &Cluster) -> bool {
    let root = c.ok("id -u") == "0";
    if !root {
        eprintln!("not root: there is only one user; this test looked at nothing");
    }
    root
}

#[test]
fn code_that_a_user_has_libpmix_load_finds_nothing_of_others() {
    let c = Cluster::start(1, 4);
    if !is_root(&c) {
        return;
    }
    c.ok("chmod 1777 . && chmod 755 .. && mkdir -m 755 plugins .pmix");
    c.write("component.c", COMPONENT);
    c.ok("gcc -w -shared -fPIC -o plugins/pmix_mca_psec_look.so component.c");
    // The library's own components stay where they are.
    let own = c.ok("dirname $(find /usr/lib /usr/local/lib /opt -name 'pmix_mca_*.so' | head -n1)");
    let dir = c.dir.display();
    c.write(
        ".pmix/mca-params.conf",
        &format!("mca_base_component_path = {dir}/plugins:{own}\n"),
    );
    // `nobody` has no home of its own where the library would look.
    std::fs::write(c.path("mpi.conf"), format!("PMIxEnv=HOME={dir}\n")).unwrap();
    c.ok("scontrol reconfigure");
    let alices = c.ok("TOKEN=TOKEN_OF_ALICE sbatch --parsable -o /dev/null --wrap 'sleep 600'");
    c.until_prints(&format!("squeue -h -j {alices} -o %T"), "RUNNING");

    let ran = as_nobody(
        &c,
        "srun --mpi=pmix -n2 bash -c 'echo rank $PMIX_RANK' | sort",
    );
    assert_eq!(ran.out, "rank 0\nrank 1\n", "{ran:?}");
    let found = c.read("component.out");
    assert!(found.contains("megabytes some\n"), "{found}");
    assert!(found.contains("secrets 0\n"), "{found}");
    assert!(
        found.contains("Uid:\t65534\t65534\t65534\t65534\n"),
        "{found}"
    );
    assert!(found.contains("NoNewPrivs:\t1\n"), "{found}");
    let environment = found.lines().find_map(|l| l.strip_prefix("environment "));
    assert!(!environment.unwrap().contains("SLURM"), "{found}");
    // Not even the node's log.
    let files = found.lines().filter_map(|l| l.strip_prefix("file "));
    let of_root: Vec<&str> = files
        .filter(|f| f.contains("/spool.") || f.contains("/log/"))
        .collect();
    assert_eq!(of_root, Vec::<&str>::new());
    c.ok(&format!("scancel {alices}"));
}
