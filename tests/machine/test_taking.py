from tests.machine.support import holds


def test_whatever_befalls_the_stream_mode_none_delivers_nothing_twice(world):
    holds(world, "taking", examples=700)
