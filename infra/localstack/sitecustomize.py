"""Read by Python at its start, through PYTHONPATH: see `emulator`.

The emulator's server for the functions' runtime API answers in two small writes, and with Nagle's
algorithm on, the second waits for the acknowledgement of the first: 40 ms for each invocation.
"""

import socketserver

socketserver.StreamRequestHandler.disable_nagle_algorithm = True
