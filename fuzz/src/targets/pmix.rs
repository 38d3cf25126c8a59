//! Messages between tasks, hosts of PMIx and step daemons, and the two text protocols of PMI.

use super::headed;
use muster_hostile::cbor::Value;
use muster_pmix::fuzzing;

pub(super) fn run(data: &[u8]) {
    if let Some((kind, bytes)) = data.split_first() {
        fuzzing::decode(usize::from(*kind), bytes);
    }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let variants = (0..18).flat_map(|variant| {
        let of = |fields| Value::Array(vec![Value::Unsigned(variant), Value::Array(fields)]);
        let text = Value::Text(b"a".to_vec());
        [
            of(Vec::new()),
            of(vec![Value::Unsigned(1), Value::Array(vec![text.clone()])]),
            of(vec![text, Value::Unsigned(1), Value::Unsigned(2)]),
        ]
    });
    let variants: Vec<Value> = variants.collect();
    let messages = (0..5).flat_map(|kind| variants.iter().map(move |value| headed(&[kind], value)));
    let lines: [&[u8]; 4] = [
        b"\x05cmd=init pmi_version=1 pmi_subversion=1\n",
        b"\x05mcmd=spawn\nnprocs=2\nexecname=a\nendcmd\n",
        b"\x05cmd=\xff\xff\n",
        b"\x06    32cmd=kvs-put;key=b;value=c;;d;thrid=1;",
    ];
    messages.chain(lines.map(<[u8]>::to_vec)).collect()
}
