//! Story 4, `cargo run --example payments`: the example runs to its end, and no payment is booked twice.

use std::process::Command;

#[test]
fn the_payments_example_books_every_payment_once() {
    let test = std::env::current_exe().expect("a path");
    let built = test.ancestors().nth(2).expect("target/<profile>/deps/<test>");
    let example = built.join("examples/payments");
    assert!(
        example.exists(),
        "cargo builds examples with the tests, unless only one of them is asked for: cargo build --examples"
    );
    let output = Command::new(example).output().expect("it starts");
    let (said, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}{error}");
    assert!(said.starts_with("30 payments, 3 answers lost and delivered again: 210 cents booked"), "{said}");
}
