//! The push sinks against real servers: HTTP/2 with our own certificate for APNs and FCM, a decrypting receiver for Web
//! Push.

mod server;

mod apns;
mod connections;
mod docs;
mod fcm;
mod storm;
mod webpush;
