//! Finds and maps the device, opens channels, writes messages, waits.
