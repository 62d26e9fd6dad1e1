//! Ranks on in-process streams: as threads that meet in memory, and by a file and sockets as processes do.

use std::path::PathBuf;

use super::rendezvous::Rendezvous;
use super::*;

/// Runs `work` as each rank, on a thread of its own.
fn on(ranks: Vec<Rendezvous>, work: impl Fn(&Comm, &Device) + Sync) {
    std::thread::scope(|scope| {
        for rendezvous in ranks {
            let work = &work;
            scope.spawn(move || {
                let device = Device::host();
                let comm = Comm::new("tp0", &device, rendezvous).unwrap();
                work(&comm, &device);
            });
        }
    });
}

fn all_collectives(comm: &Comm, device: &Device) {
    let stream = device.stream("comm").unwrap();
    let (rank, ranks) = (comm.group().rank(), comm.group().size());
    assert_eq!(comm.group().name(), "tp0");
    let matrix = |len| Matrix::from_fn(device, 1, len, |_, col| (col * (rank as usize + 1)) as f32).unwrap();
    let (one, several) = (matrix(5), [matrix(3), matrix(4)]);
    all_reduce(&stream, comm, &one).unwrap();
    all_reduce_each(&stream, comm, &several).unwrap();
    stream.synchronize().unwrap();
    let sum = (1..=ranks).sum::<usize>();
    for matrix in several.iter().chain([&one]) {
        let wanted: Vec<f32> = (0..matrix.len()).map(|col| (col * sum) as f32).collect();
        assert_eq!(matrix.to_vec().unwrap(), wanted);
    }
    let given = matrix(4);
    broadcast(&stream, comm, &given, 1).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(given.to_vec().unwrap(), [0.0, 2.0, 4.0, 6.0]);
    assert!(
        matches!(broadcast(&stream, comm, &given, 9), Err(Error::Ranks(why)) if why.starts_with("there is no rank 9"))
    );
    comm.failure().unwrap();
}

#[test]
fn threads_get_what_all_have() {
    on(Rendezvous::threads(3), all_collectives);
}

#[test]
fn ranks_meet_by_a_file_and_move_data_through_sockets() {
    let path: PathBuf = std::env::temp_dir().join(format!("tensor-ranks-{}", std::process::id()));
    // An earlier run left one, and nobody listens there any more.
    std::fs::write(&path, "127.0.0.1:9").unwrap();
    let ranks = Rendezvous::threads(3).into_iter().map(|rendezvous| rendezvous.by_file(&path)).collect();
    on(ranks, all_collectives);
    assert!(!path.exists());
}

#[test]
fn ranks_meet_at_an_address() {
    // Free a moment ago.
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let ranks = Rendezvous::threads(2).into_iter().map(|rendezvous| rendezvous.by_address(&address)).collect();
    on(ranks, all_collectives);
}

#[test]
fn a_rank_that_is_gone_is_an_error_and_not_a_hang() {
    on(Rendezvous::threads(2), |comm, device| {
        if comm.group().rank() == 1 {
            return;
        }
        let (stream, x) = (device.stream("comm").unwrap(), Matrix::zeros(device, 1, 2).unwrap());
        all_reduce(&stream, comm, &x).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(comm.failure(), Err(Error::Ranks("another rank is lost: rank 1 is gone".to_owned())));
    });
}

#[test]
fn a_group_is_told_from_that_of_another_run() {
    assert_ne!(fingerprint(b"one"), fingerprint(b"other"));
}
