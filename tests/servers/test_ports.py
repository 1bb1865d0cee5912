"""What the tests rest on: a port that one of them has chosen is given to no other program before its server listens."""

import socket
import sys

import pytest

from tests.servers.one import free_port, free_port_of_a_node, redis_server


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a port is only a good guess")
@pytest.mark.parametrize(("of", "above"), [(free_port, 0), (free_port_of_a_node, 0), (free_port_of_a_node, 10_000)])
def test_nobody_else_is_given_a_chosen_port(of, above):
    port = of() + above
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))


def test_a_server_may_have_it(tmp_path):
    port = free_port()
    with redis_server(tmp_path, port=port), socket.create_connection(("127.0.0.1", port)):
        pass
