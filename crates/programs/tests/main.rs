//! The files beside this one, in one program, which is linked once. Each test has a process of its
//! own, by cargo-nextest.

mod asleep;
mod cm_load;
mod devices;
mod errors;
mod examples;
mod faults;
mod hostile;
mod lint;
mod many_processes;
mod middleware;
mod pcap;
mod perftest;
mod perftest_options;
mod pingpong;
mod port_events;
mod pyverbs;
mod rdma_cm;
mod rdma_cm_cancel;
mod rdma_cm_killed_process;
mod rdma_cm_multicast;
mod rdma_cm_perftest;
mod rdma_cm_report;
mod rdma_cm_two_hosts;
mod rdma_core;
mod rdma_tool;
mod readme;
mod refusal_report;
mod report;
mod rsockets;
mod scale;
mod silent;
mod spoofing;
mod stopped_process;
mod unreliable;
mod xdp;
