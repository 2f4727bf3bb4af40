//! The exports, one file for each chapter of the manual of CUDA's driver API. An export reads its arguments
//! and calls the layers below it, [`crate::submit`] and [`crate::object`].

mod context;
mod device;
mod entry_point;
mod error;
mod event;
mod execution;
mod export_table;
mod graph;
mod graph_edges;
mod initialization;
mod library;
mod link;
mod memory;
mod module;
mod occupancy;
mod peer_access;
mod primary_context;
mod profiler;
mod stream;
mod stream_ordered;
mod unified_addressing;
mod virtual_memory;
