//! Parts of a request and of the process, without a socket.

use super::*;
use hyper::HeaderMap;

fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(*name, HeaderValue::from_static(value));
    }
    headers
}

/// The process would live on, and serve nobody at that socket.
#[test]
fn a_part_that_ends_is_not_done_without() {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.unwrap();
    let mut parts = JoinSet::new();
    let why = runtime.block_on(async {
        parts.spawn(std::future::pending());
        parts.spawn(async { panic!("injected") });
        first_end(&mut parts).await.to_string()
    });
    assert!(
        why.contains("has failed") && why.contains("injected"),
        "{why}"
    );
    let why = runtime.block_on(async {
        parts.spawn(async {});
        first_end(&mut parts).await.to_string()
    });
    assert!(why.contains("has ended"), "{why}");
}

#[test]
fn what_is_accepted_decides_the_form() {
    let yaml = |value| wants_yaml(&headers(&[("accept", value)]));
    assert_eq!(wants_yaml(&headers(&[])), Some(false));
    assert_eq!(yaml("*/*"), Some(false));
    assert_eq!(
        yaml("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"),
        Some(false)
    );
    assert_eq!(yaml("application/x-yaml"), Some(true));
    assert_eq!(
        yaml("application/yaml;q=0.4, application/json;q=0.5"),
        Some(false)
    );
    assert_eq!(yaml("text/plain"), None);
    assert_eq!(yaml("application/json;q=0"), None);
}

#[test]
fn answers_are_packed_for_clients_that_take_it() {
    let gzip = |value| takes_gzip(&headers(&[("accept-encoding", value)]));
    assert!(gzip("gzip, deflate, br, zstd") && gzip("deflate;q=0.5, GZIP;q=0.1"));
    assert!(!takes_gzip(&headers(&[])) && !gzip("br, *") && !gzip("gzip;q=0") && !gzip("gzip;q=x"));
}

#[test]
fn bodies_are_json() {
    let json = |value| is_json(&headers(&[("content-type", value)]));
    assert!(is_json(&headers(&[])) && json("application/json; charset=utf-8"));
    assert!(!json("text/plain") && !json("application/x-www-form-urlencoded"));
}

#[test]
fn one_token_is_sent_in_one_way() {
    let of = |pairs: &[_]| credentials(&headers(pairs)).map(|c| (c.user, c.token));
    let (name, token) = ("x-slurm-user-name", "x-slurm-user-token");
    let both = (Some("ada".to_owned()), Some("t".to_owned()));
    assert_eq!(of(&[(name, "ada"), (token, "t")]), Ok(both));
    let bearer = (None, Some("t".to_owned()));
    assert_eq!(of(&[("authorization", "Bearer t")]), Ok(bearer));
    assert_eq!(of(&[(token, "")]), Ok((None, None)));
    assert!(of(&[(token, "t"), ("authorization", "Bearer t")]).is_err());
    assert!(of(&[(token, "t"), (token, "u")]).is_err());
    assert!(of(&[("authorization", "Basic x")]).is_err());
}

/// Behind a proxy all users come from one address.
#[test]
fn requests_of_one_user_leave_a_turn_for_others_of_the_same_proxy() {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(async {
        let places = ConnectionSlots::new(8, 0, 3);
        let proxy = Origin::of([10, 0, 0, 1].into());
        let place = places.admit(proxy).unwrap();
        let mut held = Vec::new();
        let waits = loop {
            let mut next = Box::pin(turn_of_user(&place, &places, 5, None));
            match poll_once(next.as_mut()) {
                Poll::Ready(turn) => held.push(turn),
                Poll::Pending => break next,
            }
        };
        assert_eq!(held.len(), 2);
        let mut other = Box::pin(turn_of_user(&place, &places, 6, None));
        let Poll::Ready(other) = poll_once(other.as_mut()) else {
            panic!("another user waits behind all requests of the first");
        };
        drop((held, other));
        waits.await;
    });
}

/// Two users who waited for themselves had the two turns of all for large requests.
#[test]
fn a_large_request_that_waits_for_its_own_user_has_no_turn_of_all() {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(async {
        let places = ConnectionSlots::new(8, 0, 3);
        let place = places.admit(Origin::of([10, 0, 0, 1].into())).unwrap();
        let of_all = Arc::new(Semaphore::new(1));
        let mut held = Vec::new();
        let waits = loop {
            let mut next = Box::pin(turn_of_user(&place, &places, 5, None));
            match poll_once(next.as_mut()) {
                Poll::Ready(turn) => held.push(turn),
                Poll::Pending => break next,
            }
        };
        let mut large = Box::pin(turn_of_user(&place, &places, 5, Some(&of_all)));
        assert!(poll_once(large.as_mut()).is_pending());
        assert_eq!(of_all.available_permits(), 1);
        drop((held, waits));
        drop(large.await);
    });
}

/// Polls once, without a wake.
fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(std::task::Waker::noop()))
}
