"""Starts the emulator with two things mended; called by `emulator`."""

import socketserver

from ministack.app import main
from ministack.services.cloudformation import engine

# The server of the functions' runtime API answers in two small writes, and with Nagle's algorithm on
# the second waits for the acknowledgement of the first: 40 ms for each invocation.
socketserver.StreamRequestHandler.disable_nagle_algorithm = True

# A nested template is deployed without its SAM transform. To a template that has gone through its
# transforms they do nothing.
parse = engine._parse_template


def parse_and_transform(body):
    template = parse(body)
    transformed = engine._apply_transforms(template)
    transformed.pop("Transform", None)
    return transformed


engine._parse_template = parse_and_transform

main()
