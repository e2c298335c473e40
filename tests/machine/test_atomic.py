from tests.machine.support import holds


def test_whatever_befalls_the_stream_an_atomic_pipeline_has_each_message_at_its_source_or_its_destination(
    world,
):
    holds(world, "atomic", examples=450)
