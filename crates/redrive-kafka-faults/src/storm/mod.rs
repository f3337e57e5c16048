//! A storm over a cluster of three brokers and three processors, audited by id from outside the processors.
//!
//! - [`plan`]: which faults, in which order, against which targets; all of it follows from a seed
//! - [`cluster`]: the brokers, their topics and permissions; [`fleet`]: the processors, real `redrive` processes
//! - [`load`]: records for the source topics; [`receiver`]: the service that the processors call; [`seen`]: what it saw
//! - [`scene`]: all of these together, and waiting for them; [`faults`]: what each fault does to them
//! - [`audit`]: whether everything adds up; [`silence`]: how long a partition stood still
//! - [`run`]: the storm itself; [`figures`]: how soon deliveries resume after a kill and after the loss of a broker

pub mod audit;
pub mod cluster;
pub mod faults;
pub mod figures;
pub mod fleet;
pub mod flow;
pub mod load;
pub mod plan;
pub mod receiver;
pub mod run;
pub mod scene;
pub mod seen;
pub mod silence;
