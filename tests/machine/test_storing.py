from tests.machine.support import holds


def test_whatever_befalls_the_stream_a_sink_that_knows_batches_by_number_has_each_message_once(world):
    holds(world, "storing", examples=900)
