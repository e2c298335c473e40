from tests.lock_model.locks import PASSES, Lock, Mode, Queue, Until

END = Until.TRANSACTION


def lock(owner: int, mode: Mode, until: Until = END) -> Lock:
    return Lock(owner, mode, until)


def test_modes_pass_one_another_as_the_guide_says() -> None:
    passes = {tuple(sorted((asked, had))) for asked, those in PASSES.items() for had in those}
    assert passes == {
        ("IS", "IS"), ("IS", "IX"), ("IS", "S"), ("IS", "U"), ("IX", "IX"), ("S", "S"), ("S", "U"),
        ("IS", "Sch-S"), ("IX", "Sch-S"), ("S", "Sch-S"), ("Sch-S", "U"), ("Sch-S", "X"), ("Sch-S", "Sch-S"),
    }  # fmt: skip
    assert all((asked in PASSES[had]) == (had in PASSES[asked]) for asked in PASSES for had in PASSES)


def test_a_newcomer_waits_behind_a_waiting_sch_m() -> None:
    queue = Queue((lock(0, "IX"),), (lock(1, "Sch-M"),))
    queue, answer = queue.request(lock(2, "IS"), past=False)
    assert (answer, queue.blockers(2), queue.blockers(1)) == ("waits", {1}, {0})
    queue, served = queue.release(0, END)
    assert (served, queue.granted, queue.waiting) == ([1], (lock(1, "Sch-M"),), (lock(2, "IS"),))


def test_a_newcomer_overtakes_each_that_it_passes() -> None:
    """As the first article on relaxed FIFO has it: IX is held, S waits, IS goes on, IX waits behind S."""
    queue = Queue((lock(0, "IX"),), (lock(1, "S"),))
    queue, reader = queue.request(lock(2, "IS"), past=False)
    queue, writer = queue.request(lock(3, "IX"), past=False)
    assert (reader, writer, queue.blockers(3)) == ("granted", "waits", {1})


def test_a_conversion_goes_before_newcomers() -> None:
    queue = Queue((lock(0, "S"), lock(1, "U")))
    queue, _ = queue.request(lock(2, "X"), past=False)
    queue, _ = queue.request(lock(1, "X"), past=False)
    assert queue.waiting == (lock(1, "X"), lock(2, "X"))
    queue, served = queue.release(0, END)
    assert (served, queue.granted) == ([1], (lock(1, "X"),))


def test_readpast_steps_over_and_leaves_nothing_behind() -> None:
    queue = Queue((lock(0, "X"),))
    assert queue.request(lock(1, "S"), past=True) == (queue, "skipped")


def test_a_lock_is_kept_as_long_as_its_longest_request() -> None:
    queue, _ = Queue((lock(0, "U"),)).request(lock(0, "S", Until.ROW), past=True)
    assert queue.granted == (lock(0, "U"),)
    assert queue.release(0, Until.STATEMENT) == (queue, [])
