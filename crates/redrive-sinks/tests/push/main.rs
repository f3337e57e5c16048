//! The push sinks against real servers: HTTP/2 with a certificate of our own for APNs and FCM, a receiver that decrypts
//! for Web Push.

mod server;

mod apns;
mod connections;
mod docs;
mod fcm;
mod storm;
mod webpush;
