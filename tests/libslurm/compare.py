"""Compares slurm.h and slurmdb.h of two include directories: sizes, offsets and types of members, values of constants,
types of functions.

    compare.py OUR_INCLUDE OTHER_INCLUDE

Names come from the first. The directories have slurm/slurm.h; Debian's is /usr/include, of the package libslurm-dev.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

HEADERS = ("slurm/slurm_errno.h", "slurm/slurm.h", "slurm/slurmdb.h")


def without_comments(text):
    return re.sub(r"/\*.*?\*/", "", text, flags=re.S)


def bodies(text):
    """Structures with a body, by the name of a type, and the text of the body."""
    for found in re.finditer(r"typedef struct(?: \w+)? \{(.*?)\n\} ?(\w+);", text, flags=re.S):
        yield found.group(2), found.group(1)
    for found in re.finditer(r"(?<!typedef )(struct \w+) \{(.*?)\n\};", text, flags=re.S):
        yield found.group(1), found.group(2)


def members(body):
    """Names of the members of a body; those of a structure inside are left out, but for its own name."""
    body = re.sub(r"\{.*?\}", "", body, flags=re.S)
    for declaration in body.split(";"):
        pointer = re.search(r"\(\*(\w+)\)", declaration)
        names = [pointer.group(1)] if pointer else re.findall(r"(\w+)(?:\[[^\]]*\])*\s*(?=,|$)", declaration.strip())
        yield from names


def program(texts):
    lines = ["#include <stddef.h>", "#include <stdio.h>"]
    lines += [f"#include <{header}>" for header in HEADERS]
    lines += [
        "#define M(t, m) printf(#t \".\" #m \" %zu %zu\\n\", offsetof(t, m), sizeof ((t *)0)->m);",
        "#define V(v) printf(#v \" %lld %zu\\n\", (long long)(v), sizeof (v));",
        "int main(void) {",
    ]
    for text in texts:
        for name, body in bodies(text):
            lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
            lines += [f"M({name}, {member})" for member in members(body)]
        for found in re.finditer(r"enum(?: \w+)? \{(.*?)\}", text, flags=re.S):
            names = re.findall(r"(?:^|,)\s*(\w+)", found.group(1))
            lines += [f"V({name})" for name in names]
        for name, value in re.findall(r"^#define (\w+)[ \t]+(\S.*)$", text, flags=re.M):
            if not (name.endswith("_defined") or value.startswith("{") or "BITSTR" in value):
                lines.append(f"V({name})")
    lines.append("return 0; }")
    return "\n".join(lines)


def functions(texts):
    """A program that only compiles if both headers declare the functions with the same types: it declares them again."""
    lines = [f"#include <{header}>" for header in HEADERS]
    for text in texts:
        lines += re.findall(r"^extern [^;{]*\);", text, flags=re.M | re.S)
    return "\n".join(lines)


def run(include, source, place, is_run):
    file = place / "probe.c"
    file.write_text(source)
    words = ["cc", "-w", "-I", include, "-o", str(place / "probe"), str(file)]
    subprocess.run(words if is_run else words[:-3] + ["-fsyntax-only", str(file)], check=True)
    return subprocess.run([place / "probe"], check=True, capture_output=True, text=True).stdout if is_run else ""


def main():
    ours, others = sys.argv[1:]
    texts = [without_comments((Path(ours) / header).read_text()) for header in HEADERS]
    with tempfile.TemporaryDirectory() as place:
        own, other = (run(i, program(texts), Path(place), True).splitlines() for i in (ours, others))
        run(others, functions(texts), Path(place), False)
    different = [pair for pair in zip(own, other) if pair[0] != pair[1]]
    for mine, theirs in different:
        print(f"ours: {mine}   theirs: {theirs}")
    print(f"{len(own)} facts compared, {len(different)} differ")
    return 1 if different or len(own) != len(other) else 0


sys.exit(main())
