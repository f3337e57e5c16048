//! A small HTTP/1 server on hyper, shared by the producer and the downstream.

mod answer;
mod serve;

pub(crate) use answer::{Answer, answer, body, fault, json, parameter, text};
pub(crate) use serve::{Door, Listen, Routes, Served};
