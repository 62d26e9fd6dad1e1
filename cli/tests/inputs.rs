//! Every command that takes files takes them compressed and in folders, and says the same of them: each command by each kind of input.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use warpline::collective::ProcessGroup;
use warpline::{HostStream, Session, collective, gpu_zone, step};

use crate::support::{alone, readers};

/// Runs in each step.
#[gpu_zone("cli.inputs.work", stream = stream, fields(n = n))]
fn work(stream: &HostStream, n: u64) {
    let _ = n;
    stream.launch(|| ());
}

/// Is the same on all ranks.
#[collective("cli.inputs.sum", kind = "all_reduce", count = 1_000, dtype = f32, group = group, op = "sum")]
fn sum(stream: &HostStream, group: &ProcessGroup) {
    stream.launch(|| ());
}

/// The files of one session.
struct Recorded {
    perfetto: PathBuf,
    chrome: PathBuf,
    flight: PathBuf,
}

fn record(folder: &Path) -> Recorded {
    let _turn = alone();
    let [perfetto, chrome, flight] = ["t.pftrace", "t.json", "t.flight"].map(|name| folder.join(name));
    let session = Session::builder().perfetto(&perfetto).chrome(&chrome).flight_at(1 << 20, &flight).quiet();
    let session = session.start().unwrap();
    let (stream, group) = (HostStream::new("compute"), ProcessGroup::new("tp0", [0, 1], 0).with_comm_id(7));
    for number in 0..20 {
        step(number as u32);
        work(&stream, number);
        sum(&stream, &group);
        stream.synchronize().unwrap();
    }
    session.finish();
    Recorded { perfetto, chrome, flight }
}

fn packed(bytes: &[u8], ending: &str) -> Vec<u8> {
    match ending {
        "gz" => {
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            gzip.write_all(bytes).unwrap();
            gzip.finish().unwrap()
        }
        _ => ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest),
    }
}

/// The kinds of input with this content: the path that a command gets, by kind. The first is the file itself.
fn kinds(file: &Path, folder: &Path) -> Vec<(&'static str, PathBuf)> {
    let (bytes, name) = (fs::read(file).unwrap(), file.file_name().unwrap().to_str().unwrap());
    let put = |kind: &str, name: String, bytes: &[u8]| {
        let path = folder.join(kind).join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    };
    let plain = put("plain", name.to_owned(), &bytes);
    let gzip = put("gzip", format!("{name}.gz"), &packed(&bytes, "gz"));
    let zstd = put("zstd", format!("{name}.zst"), &packed(&bytes, "zst"));
    put("deep/host1/rank0", format!("{name}.gz"), &packed(&bytes, "gz"));
    // What a folder may also hold.
    put("deep", "notes.txt".to_owned(), b"not a trace");
    put("deep/host1", ".hidden.pftrace".to_owned(), b"not complete");
    put("deep", "kernel_annotations_rank0.json".to_owned(), b"{}");
    vec![
        ("file", plain),
        ("gzip", gzip),
        ("zstd", zstd),
        ("folder", folder.join("plain")),
        ("folder of gzip", folder.join("gzip")),
        ("folder of zstd", folder.join("zstd")),
        ("folders in a folder", folder.join("deep")),
    ]
}

fn warpline(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_warpline")).args(args).env_remove("WARPLINE").output().unwrap()
}

/// What the command says. Its input is called `IN` and the other path `OUT`.
fn said(args: &[&str], input: &Path, output: &Path) -> String {
    let Output { status, stdout, stderr } = warpline(args);
    let (stdout, stderr) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    assert!(status.success(), "{args:?}: {stderr}{stdout}");
    let mut text = format!("{stdout}\n{stderr}").replace(output.to_str().unwrap(), "OUT");
    // A folder stands for the file in it, and messages name that.
    if let Some(at) = text.find(input.to_str().unwrap()) {
        let end = text[at..].find([':', ' ', '\n']).unwrap_or(text.len() - at);
        text.replace_range(at..at + end, "IN");
    }
    text
}

/// Runs a command on each kind of input, and compares what it says and writes with what it does for the file itself.
fn same(what: &str, file: &Path, args: &dyn Fn(&str, &str) -> Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let output =
        folder.path().join(format!("out.{}", if file.extension().unwrap() == "json" { "json" } else { "pftrace" }));
    let mut expected = None;
    for (kind, input) in kinds(file, folder.path()) {
        let args = args(input.to_str().unwrap(), output.to_str().unwrap());
        let text = said(&args.iter().map(String::as_str).collect::<Vec<_>>(), &input, &output);
        let mut written = fs::read(&output).ok();
        if what.contains("html") {
            // A page has the names of the files that it is of, packed with its figures.
            assert!(written.take().is_some_and(|page| page.len() > 10_000), "{what}, {kind}");
        }
        let _ = fs::remove_file(&output);
        let (expected_text, expected_written) = expected.get_or_insert_with(|| (text.clone(), written.clone()));
        assert_eq!(text, *expected_text, "{what}, {kind}");
        assert!(written == *expected_written, "{what}, {kind}: another output");
    }
}

fn words(text: &[&str]) -> Vec<String> {
    text.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn each_command_reads_each_kind_of_input() {
    let folder = tempfile::tempdir().unwrap();
    let Recorded { perfetto, chrome, flight } = record(folder.path());
    for trace in [&perfetto, &chrome] {
        same("report", trace, &|input, _| words(&["report", input, "--format", "json"]));
        same("report --html", trace, &|input, output| words(&["report", input, "--format", "json", "--html", output]));
        same("compare", trace, &|input, _| words(&["compare", input, input, "--format", "json"]));
        same("catalog", trace, &|input, _| words(&["catalog", input, "--format", "json"]));
        same("check", trace, &|input, _| words(&["check", input, "--strict"]));
    }
    same("stragglers", &perfetto, &|input, _| words(&["stragglers", input, "--format", "json"]));
    same("recover", &flight, &|input, output| words(&["recover", input, "-o", output]));
    let killed = folder.path().join("killed.json");
    let whole = fs::read(&chrome).unwrap();
    fs::write(&killed, &whole[..whole.len() * 2 / 3]).unwrap();
    same("recover", &killed, &|input, output| words(&["recover", input, "-o", output]));
}

/// PyTorch's trace of a graph's replays. Of a folder, the output is a folder with a file of the trace's name.
#[test]
fn annotate_reads_each_kind_of_input() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../annotate/tests/data");
    let unpacked = |path: &Path| {
        let mut bytes = Vec::new();
        flate2::read::GzDecoder::new(fs::File::open(path).unwrap()).read_to_end(&mut bytes).unwrap();
        bytes
    };
    let folder = tempfile::tempdir().unwrap();
    let [file, out] = ["t.json", "out"].map(|name| folder.path().join(name));
    fs::write(&file, unpacked(&data.join("torch_graph.json.gz"))).unwrap();
    let annotations = data.join("torch_graph.annotations.json");
    let mut expected = None;
    for (kind, input) in kinds(&file, folder.path()) {
        let output = if input.is_dir() { out.clone() } else { out.with_extension("json") };
        let [annotations, trace, to] = [&annotations, &input, &output].map(|path| path.to_str().unwrap());
        let args = ["annotate", "--annotations", annotations, "--by", "order", "--trace", trace, "-o", to];
        let Output { status, stdout, stderr } = warpline(&args);
        let said = String::from_utf8(stdout).unwrap();
        assert!(status.success() && said.contains(": 95 of 95 "), "{kind}: {said}{stderr:?}");
        let written = said.split_once(": ").unwrap().0;
        let written = if written.ends_with(".gz") { unpacked(written.as_ref()) } else { fs::read(written).unwrap() };
        assert!(written == *expected.get_or_insert_with(|| written.clone()), "{kind}: another output");
        let _ = fs::remove_dir_all(&out);
    }
}

/// The name and the content of what the server of `warpline open` sends.
fn opened(traces: &[&Path]) -> (String, Vec<u8>) {
    let readers::Opened { mut child, address } = readers::open(traces);
    let (address, mut served) = (address.expect("it serves them"), Vec::new());
    readers::read_served(&address, |piece| served.extend_from_slice(piece));
    assert!(child.wait().unwrap().success());
    (address.1.rsplit('/').next().unwrap().to_owned(), served)
}

#[test]
fn open_serves_each_kind_of_input() {
    let folder = tempfile::tempdir().unwrap();
    let recorded = record(folder.path());
    let room = tempfile::tempdir().unwrap();
    let trace = fs::read(&recorded.perfetto).unwrap();
    for (kind, input) in kinds(&recorded.perfetto, room.path()) {
        let (name, served) = opened(&[&input]);
        // Perfetto reads gzip itself.
        let expected =
            if kind.contains("gzip") || kind.contains("folders") { packed(&trace, "gz") } else { trace.clone() };
        assert!(served == expected, "{kind}: {} bytes", served.len());
        assert!(name.starts_with("t.pftrace") && !name.ends_with(".zst"), "{kind}: {name}");
    }
}

#[test]
fn open_puts_no_answer_together_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let Recorded { perfetto, .. } = record(folder.path());
    let readers::Opened { mut child, address } = readers::open(&[&perfetto, &perfetto]);
    let address = address.expect("it serves them");
    // Several traces have no length that is known before, and HTTP/1.0 has no chunks. Every client of HTTP/1.1 takes them, whatever its `TE` says.
    let mut stream = std::net::TcpStream::connect(&address.0).unwrap();
    let (host, path) = &address;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.split_once("\r\n").is_some_and(|(status, _)| status.contains(" 505 ")), "{answer}");
    let mut served = 0;
    readers::read_served(&address, |piece| served += piece.len() as u64);
    assert_eq!(served, 2 * fs::metadata(&perfetto).unwrap().len());
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_folder_of_recorders_becomes_a_trace_for_each_process() {
    let folder = tempfile::tempdir().unwrap();
    let Recorded { flight, .. } = record(folder.path());
    let room = tempfile::tempdir().unwrap();
    let path = |name: &str| room.path().join(name);
    fs::copy(&flight, path("rank0.flight")).unwrap();
    fs::write(path("rank1.flight"), b"warpline flight").unwrap();
    fs::copy(&flight, path("rank2.flight")).unwrap();
    let input = room.path().to_str().unwrap();
    let one = warpline(&["recover", input, "-o", path("last.pftrace").to_str().unwrap()]);
    let text = String::from_utf8(one.stderr).unwrap();
    assert!(one.status.code() == Some(2) && text.contains("the folder has 3 files; put `{pid}` into"), "{text}");
    let all = warpline(&["recover", input, "-o", path("last-{pid}.pftrace").to_str().unwrap()]);
    let (said, text) = (String::from_utf8(all.stdout).unwrap(), String::from_utf8(all.stderr).unwrap());
    assert_eq!((all.status.code(), said.lines().count()), (Some(2), 1), "{said}{text}");
    assert!(
        text.contains("rank1.flight")
            && text.contains("rank2.flight: an earlier file with the same process id was recovered into "),
        "{text}"
    );
    assert!(path(&format!("last-{}.pftrace", std::process::id())).exists());
}

#[test]
fn a_folder_without_a_trace_is_named_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("notes.txt"), "").unwrap();
    let (input, output) = (folder.path().to_str().unwrap(), folder.path().join("o.pftrace"));
    for args in [
        &["report", input][..],
        &["compare", input, input],
        &["stragglers", input],
        &["catalog", input],
        &["check", input],
        &["open", "--no-browser", "--port", "0", input],
        &["annotate", "--trace", input, "-o", "out"],
        &["recover", input, "-o", output.to_str().unwrap()],
    ] {
        let output = warpline(args);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), text.lines().count()), (Some(2), 1), "{args:?}: {text}");
        assert!(text.contains("no file in the folder has a name that ends in `."), "{args:?}: {text}");
    }
}
