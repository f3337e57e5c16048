//! The wire form at its edges: the largest parts, the smallest ones, and damage in each of them.

use redrive_core::message::{MessageError, limits};
use redrive_core::{Message, Time};

/// Offset of the header count in the wire form.
const HEADER_COUNT_AT: usize = 6;
const ID_AT: usize = 32;

fn damaged(message: &Message, change: impl FnOnce(&mut Vec<u8>)) -> bool {
    let mut wire = message.wire().to_vec();
    change(&mut wire);
    matches!(Message::from_wire(wire.into()), Err(MessageError::Damaged(_)))
}

#[test]
fn the_limits_are_the_documented_ones() {
    assert_eq!(limits::KEY_BYTES_MAX, 32_768);
    assert_eq!(limits::HEADERS_BYTES_MAX, 262_144);
    assert_eq!(limits::PAYLOAD_BYTES_MAX, 33_554_432);
    let key = |bytes: usize| Message::builder("a").key(vec![b'k'; bytes]).build();
    assert!(key(limits::KEY_BYTES_MAX).is_ok());
    let headers =
        |count| (0..count).fold(Message::builder("a"), |m, i| m.header(format!("h{i}"), "")).build();
    assert!(headers(limits::HEADERS_MAX).is_ok());
    let too_many = headers(limits::HEADERS_MAX + 1).unwrap_err().to_string();
    assert_eq!(too_many, "the message has 257 headers, at most 256 are allowed");
    assert!(matches!(key(limits::KEY_BYTES_MAX + 1), Err(MessageError::TooLarge { part: "key", .. })));
}

#[test]
fn times_and_lengths_beyond_two_bytes_survive_the_wire() {
    let created = Time::from_millis(1_700_000_000_123);
    let deadline = Time::from_millis(u64::MAX);
    let value = vec![b'v'; 70_000];
    let message =
        Message::builder("a").header("h", value.clone()).payload("p").created(created).deadline(deadline);
    let read = Message::from_wire(message.build().unwrap().wire().clone()).unwrap();
    assert_eq!((read.created(), read.deadline()), (created, Some(deadline)));
    assert_eq!(read.headers().collect::<Vec<_>>(), [("h", &value[..])]);
    assert_eq!(read.payload(), Some(&b"p"[..]));
}

#[test]
fn an_empty_header_is_a_header() {
    let message = Message::builder("a").header("x", "1").header("", "").build().unwrap();
    let read = Message::from_wire(message.wire().clone()).unwrap();
    assert_eq!(read.headers().collect::<Vec<_>>(), [("x", &b"1"[..]), ("", &b""[..])]);
}

#[test]
fn a_wrong_number_of_headers_is_damage() {
    let message = Message::builder("a").header("x", "1").header("y", "2").build().unwrap();
    for count in [0, 1, 3] {
        assert!(damaged(&message, |wire| wire[HEADER_COUNT_AT] = count), "{count} instead of 2");
    }
}

#[test]
fn text_that_is_not_text_is_damage() {
    let message = Message::builder("id").tenant("t").build().unwrap();
    assert!(!damaged(&message, |_| ()));
    assert!(damaged(&message, |wire| wire[ID_AT] = 0xFF), "in the id");
    assert!(damaged(&message, |wire| wire[ID_AT + 2] = 0xFF), "in the tenant");
}

#[test]
fn debug_output_names_the_message() {
    let message = Message::builder("o-1").created(Time::from_millis(7)).build().unwrap();
    let text = format!("{message:?}");
    assert!(text.contains("\"o-1\"") && text.contains("7ms"), "{text}");
}
