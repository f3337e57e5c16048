//! A small HTTP/1 server on hyper, shared by the producer and the downstream.

mod answer;
pub(crate) mod percent;
mod serve;

pub(crate) use answer::{Answer, answer, body, fault, json, parameter, text};
pub(crate) use serve::{Door, Listen, Routes, Served};
