"""Both halves of a pool of one worker without MPI, as two processes.

Imported by a script, it stands in for the driver; run by itself, it is the worker.
"""

import atexit
import struct
import subprocess
import sys

from workpool import serializer


def send(stream, *parts):
    for part in parts:
        stream.write(struct.pack("<Q", len(part)))
        stream.write(part)
    stream.flush()


def receive(stream):
    (nbytes,) = struct.unpack("<Q", stream.read(8))
    return bytearray(stream.read(nbytes))


def joined(encoded):
    return encoded if isinstance(encoded, bytes) else encoded.tobytes()


class Worker:
    """The driver's half: `run` gives the task's value or raises its exception."""

    def __init__(self):
        from workpool.serializer.code_cache import CodeCache  # which a worker does without

        self.process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        atexit.register(self.close)
        self.codes = CodeCache()
        self.code_ids_sent = set()
        self.code_ids_used = []

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()

    def run(self, fn, /, *args, **kwargs):
        payload, code = self.codes.pack(fn, args, kwargs, self.codes.lookup(fn))
        self.code_ids_used.append(code and code.code_id)
        code_id, data = (0, b"") if code is None else (code.code_id, code.data)
        if code_id in self.code_ids_sent:
            data = b""
        self.code_ids_sent.add(code_id)
        send(self.process.stdin, struct.pack("<Q", code_id), data, joined(payload))
        (kind,) = receive(self.process.stdout)
        value, error = serializer.unpack_outcome(kind, receive(self.process.stdout), fn)
        if error is not None:
            raise error
        return value


def serve():
    serializer.leave_script()
    callables = serializer.CallableCache()
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr
    while source.peek(1):
        (code_id,) = struct.unpack("<Q", receive(source))
        data, payload = receive(source), receive(source)
        task = None
        try:
            if data:
                callables.add(code_id, data)
            serializer.clear_script()  # as a worker does
            known = callables.get(code_id)
            fn, args, kwargs = serializer.unpack_call(payload)
            task = fn = fn or known
            kind, encoded = 0, serializer.pack_value(fn(*args, **kwargs), task)
        except BaseException as error:
            kind = 1
            encoded = serializer.pack_exception(error, task=task, rank=1, host="here")
        send(sink, bytes([kind]), joined(encoded))


if __name__ == "__main__":
    serve()
