"""The sans-I/O heart: events in, effects out. It reads no clock, opens no file, and can be run under any time."""
